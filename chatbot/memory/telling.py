"""Content of a sentence: its words without pleasantries, how rare they are, what it decides or leaves open. Pure.

Summaries and maintenance choose by it. What is worth remembering at all is decided elsewhere: see `memorability`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache

from chatbot.stores.text.analysis import terms

_CHATTY = """
    hi hello hey heya hiya howdy yo good great morning evening afternoon night day nice fine cool awesome amazing wow
    thanks thank thankful thx ty cheers bye goodbye cya later welcome sorry pleasure worries problem sure yep yup
    yeah yes nope no okay ok alright right well lol haha hehe hmm hm ah oh ooh love lovely glad happy fun enjoy excited
    exciting hope wish wait luck care friend guys buddy mate there how are you doing going today week weekend time sound
    sounds look looking looks forward talk chat hear hearing catch soon true exactly totally definitely
    absolutely really
    understand understood agree agreed interesting perfect excellent wonderful fantastic sweet appreciate support ready
    noted got everyone everything meet met please help quick question swamped busy ask long lot
    hallo moin servus guten morgen tag abend gute nacht danke dankeschon bitte tschuss tschuess gerne genau klar super
    toll prima schon wie geht es dir ihnen
    bonjour salut bonsoir merci beaucoup oui non bien ca va comment revoir
    hola buenos buenas dias tardes noches gracias adios claro vale que tal como estas
    ciao buongiorno buonasera grazie prego ola obrigado obrigada bom dia boa tarde noite
    privet привет здравствуйте спасибо пока да нет хорошо
"""
_CHATTY_SIGNS = re.compile(
    r"你好|您好|早上好|晚上好|早安|晚安|谢谢|謝謝|多谢|再见|再見|好的|没事|不客气|哈哈|"
    r"こんにちは|こんばんは|おはよう|ありがとう|ございます|さようなら|はい|了解|안녕하세요|안녕|감사합니다|고마워"
)
_GREETING = re.compile(
    r"(?:hi|hello|hey\w?|hiya|howdy|yo|good (?:morning|evening|afternoon|night)|thanks|thank you|bye|see (?:you|ya)|"
    r"hallo|guten \w+|danke|bonjour|salut|merci|hola|gracias|ciao|grazie|olá|oi|привет)[ ,]+([^\W\d_]+)",
    re.IGNORECASE,
)
"""Greeting with the name of the person greeted."""
_DECIDED = re.compile(
    r"\b(?:(?:i|we)(?:['’]ve| have)?(?: (?:just|finally|all|both))? (?:decided|chose|chosen|agreed|settled)|"
    r"decided (?:to|on|against)|it['’]?s (?:decided|settled)|let['’]?s (?:go with|use|stick with)|"
    r"(?:i|we)(?:['’]ll| will) (?:go with|use|stick with)|(?:i|we)(?:['’]m|['’]re| am| are) going with)\b|"
    r"\b(?:beschlossen|entschieden|einigen uns auf|geeinigt)\b|\b(?:avons|ai) (?:décidé|choisi)|"
    r"\b(?:decidimos|hemos decidido|decidí)\b|\bdecision:|决定|選んだ|決めた",
    re.IGNORECASE,
)
_NO_ERRAND = (
    r"(?:say|admit|agree|confess|tell|ask|know|thank|laugh|mention|think|believe|go now|run|"
    r"be (?:honest|careful|there)|feel|see it|hear|remember that|smile|work hard|do is|"
    r"figure out life|keep (?:going|pushing|fighting))\b"
)
_NO_REMINDER = r"(?:take|stay|prepare|enjoy|have|be|keep|look after|breathe|smile|motivate|celebrate)\b"
_OPEN = re.compile(
    r"(?<!\w)(?:to-?do(?:\s*:|\s+list\s*:)|fixme\b)|"
    rf"\b(?:(?:i|we|you) still (?:need|have|has) to (?!{_NO_ERRAND})|still (?:needs|has) to be|"
    r"(?:remains?|is left|are left|yet) to be \w+ed\b|"
    r"(?:is|are|was|have|has|haven['’]?t|isn['’]?t)(?: not)? ?yet (?:been )?"
    r"(?:decided|clear|paid|fixed|booked|settled)|"
    r"not yet (?:done|decided|clear|paid|booked|settled)|left to do|open questions?\s*(?:is|are|:)|"
    r"next steps?\s*(?:is|are|:)|"
    r"(?:^|(?<=please )|(?<=you )|(?<=, ))remind me (?:to|about|on|at|in|tomorrow)|"
    rf"don['’]?t forget to (?!{_NO_REMINDER})|"
    rf"(?:i|we) (?:really |also |just )?(?:need|have) to (?!{_NO_ERRAND})\w+)|"
    r"待办|还没|まだ|\b(?:ich|wir) (?:muss|müssen) noch\b|\bnicht vergessen\b|\bfaut (?:encore|que je)\b|\btengo que\b",
    re.IGNORECASE,
)
_NO_PLAN = re.compile(
    r"^(?:if|when|whenever|because|since|sometimes|you know)\b|"
    r"\b(?:would|could|used to|had to|always|sometimes|every time|whenever|wherever|how (?:much|many)|"
    r"in life|in general|(?:all|what) (?:i|we) (?:need|have) to|"
    r"(?:don['’]?t|do not|didn['’]?t|no longer|never)(?: \w+)? (?:need|have) to)\b",
    re.IGNORECASE,
)
_DONE = re.compile(
    r"\b(?:done|finished|completed|bought|paid|sent|booked|fixed|renewed|called|cancelled|ordered|returned|solved|"
    r"settled|no longer needed|erledigt|gekauft|bezahlt|terminé|hecho)\b|完成|済み",
    re.IGNORECASE,
)
_DONE_SHARE = 0.5
_NUMBER = re.compile(r"\d+")
_MOST_COMPARED = 2_000


def content(text: str) -> frozenset[str]:
    """The terms of a text that are no pleasantries."""
    if not text.isascii():
        text = _CHATTY_SIGNS.sub(" ", text)
    return frozenset(terms(text)) - _chatty()


def is_small_talk(text: str) -> bool:
    """Return whether a text is only a greeting (also with a name), thanks or assent."""
    found = content(text)
    greeted = _GREETING.match(text.strip())
    return not found or (greeted is not None and found <= {*terms(greeted[1])})


def tells(text: str) -> int:
    """Return how many different content words a text has."""
    return len(content(text))


def is_decision(sentence: str) -> bool:
    """Return whether a sentence states a decision; a question does not."""
    return not _asks(sentence) and _DECIDED.search(sentence) is not None


def is_open(sentence: str) -> bool:
    """Return whether a sentence names something particular still to be done, not a habit or a figure of speech."""
    if _asks(sentence) or is_decision(sentence) or _NO_PLAN.search(sentence):
        return False
    return _OPEN.search(sentence) is not None and bool(content(_OPEN.sub(" ", sentence)) or content(sentence))


def closes(sentence: str, item: str) -> bool:
    """Return whether a sentence says that an open item is done: it holds most of the item's words."""
    if _asks(sentence) or is_open(sentence) or not _DONE.search(sentence):
        return False
    words = content(_OPEN.sub(" ", item)) or content(item)
    return bool(words) and len(words & content(sentence)) >= _DONE_SHARE * len(words)


def _asks(sentence: str) -> bool:
    return sentence.rstrip().endswith(("?", "？"))


def rarity(texts: Sequence[str]) -> list[float]:
    """Score for each text how much it adds to the others: many content words, few of which are in the others.

    Numbers count as one word, so "day 7" and "day 8" are the same.
    """
    words = [content(_NUMBER.sub("0", text)) for text in texts[:_MOST_COMPARED]]
    holders = Counter(word for each in words for word in each)
    return [_rare(each, holders, len(words)) for each in words] + [0.0] * (len(texts) - len(words))


def _rare(words: Iterable[str], holders: Counter[str], n: int) -> float:
    """The mean rarity of the words of a text, times how much it says, which saturates."""
    shares = [math.log((1 + n) / holders[word]) for word in words]
    return math.fsum(shares) / len(shares) * (1 - math.exp2(-len(shares) / 3)) if shares else 0.0


@cache
def _chatty() -> frozenset[str]:
    return frozenset(terms(_CHATTY)) | frozenset(_CHATTY.split())

"""Decide which exchanges to remember, by a judgement, and how much a text says. Pure."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from msgspec import Struct

from chatbot.embedder import Judgement
from chatbot.stores.text.analysis import is_question, terms

THRESHOLD = 0.30
_LEAST_NEW = 0.2
"""Minimum share of new content words in a reply that alone justifies keeping an exchange."""
_LONGEST_ANSWER = 40
"""Maximum characters of a message that counts as an answer to the bot's question."""
_ANSWER_WORDS = 2
"""Minimum content words of a question with its short answer: an offer with a "yes" has none."""
_MORE_TO_STATE = 0.35
"""How much more a question has to state, by the head, for each point of `needs_memory`."""
_NUMBER = re.compile(r"\d+")
_MOST_COMPARED = 2_000


class Memorability(Struct, frozen=True):
    """Measure of what is worth remembering: no tool run below the threshold; with 0 everything, exchanges too."""

    threshold: float = THRESHOLD


def toward_one(measure: float) -> float:
    """Return a share that grows with the measure: 0.5 at 1, approaching 1."""
    return 1 - math.exp2(-max(0.0, measure))


def is_worth_keeping(
    text: str, reply: str | None, judged: Judgement | None, *, known: Iterable[str] = (), question: str = ""
) -> bool:
    """Return whether an exchange is kept, by the judgement of the user's text; without one, whether it has content.

    Statements and short answers to the bot's `question` are kept, and questions that need memory if their reply says
    more than was `known`. The rest is small talk or general knowledge.
    """
    if judged is None:
        return bool(content(text)) or _is_answer(text, question)
    if judged.states_something or _is_answer(text, question):
        return True
    return reply is not None and judged.needs_memory and share_unknown(content(reply), known) >= _LEAST_NEW


def _is_answer(text: str, question: str) -> bool:
    is_short = bool(text) and len(text) <= _LONGEST_ANSWER and not is_question(text)
    return is_short and bool(question) and len(content(text) | content(question)) >= _ANSWER_WORDS


def asks_more(scores: Mapping[str, float]) -> bool:
    """Return whether a sentence states too little for how much it needs memory: "Who is my dentist?" is no fact."""
    needs = scores.get("needs_memory", 0.0)
    return needs > 0 and scores.get("states_something", 0.0) <= _MORE_TO_STATE * needs


def content(text: str) -> frozenset[str]:
    """Return the content words of a text, without signs such as emoji."""
    return frozenset(term for term in terms(text) if any(map(str.isalnum, term)))


def rarity(texts: Sequence[str]) -> list[float]:
    """Return for each text how much it adds to the others: more for many content words, and for words that few have.

    Numbers count as one word, so "day 7" and "day 8" are the same. Texts after the first 2,000 get 0.
    """
    words = [content(_NUMBER.sub("0", text)) for text in texts[:_MOST_COMPARED]]
    holders = Counter(word for each in words for word in each)
    return [_mean_rarity(each, holders, len(words)) for each in words] + [0.0] * (len(texts) - len(words))


def _mean_rarity(words: Iterable[str], holders: Counter[str], n: int) -> float:
    """Return the mean rarity of the words of a text, times a factor that grows with their number up to 1."""
    shares = [math.log((1 + n) / holders[word]) for word in words]
    return math.fsum(shares) / len(shares) * toward_one(len(shares) / 3) if shares else 0.0


def share_unknown(words: AbstractSet[str], known: Iterable[str]) -> float:
    """Return the share of the words that no known text has; 0 of no words."""
    seen = {word for text in known for word in terms(text)}
    return 1 - len(words & seen) / len(words) if words else 0.0

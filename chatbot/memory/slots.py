"""Typed slots of a profile, read from what a person says about themselves. Pure, by rule, in English.

A slot is filled only where the speaker states it of themselves, now: the statement begins a clause with "I", "we", "my"
or "our", its value is of the type of the slot (a place, a language, an occupation), and nothing around it hedges it,
quotes it, makes it past or supposes it. An answer to the bot's own question of such a kind fills a slot, too. What is
not plain fills nothing: the exchange is the evidence, and is still recalled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from chatbot.memory.slot_questions import answered
from chatbot.memory.slot_values import (
    allergens_in,
    date_in,
    email_in,
    job_in,
    languages_in,
    name_in,
    org_in,
    phone_in,
    place_in,
)
from chatbot.memory.slot_words import KIN, LANGUAGES, NO_NAME
from chatbot.words import sentences

_LONGEST = 2_000
"""Characters of a message that are looked at: a longer one is hardly about the person alone."""
_MOST_CLAUSES = 40


@dataclass(frozen=True, slots=True)
class SlotStatement:
    """A value that a person gave a slot of their own; `ended`: that it does not hold, or no longer."""

    slot: str
    value: str
    ended: bool = False
    since: str = ""
    """The words that say from when on it holds."""
    corrects: bool = False
    """True if the person retracts something."""


def stated(text: str, question: str = "", *, employers: Iterable[str] = ()) -> list[SlotStatement]:
    """The slots that a message fills; `question` is the bot's, that it answers.

    `employers` are those that are known: "I left Bosch" says little without.
    """
    said = _without_quotes(text[:_LONGEST])
    if said is None:
        return []
    known = frozenset(each.casefold() for each in employers)
    found: dict[tuple[str, str], SlotStatement] = {}
    plain = said == said.lower()
    for sentence in _statements(said):
        for each in _in_sentence(sentence, plain=plain, message=said, known=known):
            found[each.slot, each.value.casefold()] = each
    if question and not found:
        found = {(slot, value.casefold()): SlotStatement(slot, value) for slot, value in answered(said, question)}
    return list(found.values())


def own_statements(text: str) -> Iterator[str]:
    """The sentences of a message that are its speaker's own: no question, nothing quoted or taken back."""
    said = _without_quotes(text[:_LONGEST])
    yield from _statements(said) if said is not None else ()


def _statements(said: str) -> Iterator[str]:
    """The sentences that are no question, and are not taken back."""
    parts = list(sentences(said, _END))
    for at, sentence in enumerate(parts):
        if not sentence.endswith("?") and not _TAKEN_BACK.search(" ".join(parts[at:])):
            yield _straightened(sentence)


# --- what a message is made of ---------------------------------------------------------------------------------------

_QUOTED = re.compile(r"\"[^\"\n]*\"|“[^”\n]*”|«[^»\n]*»|„[^“”\n]*[“”]|(?:(?<=\s)|^)'[^'\n]{4,}'(?=[\s.,!?]|$)")
_FOREIGN = re.compile(
    r"^\s*(?:>|from:|translate|summari[sz]e|rewrite|rephrase|paraphrase|correct|proofread|fix|"
    r"quote\b|how (?:do|would) (?:i|you) "
    r"say|write|imagine|pretend|let['’]?s (?:say|pretend|imagine)|suppose|assume|say i|for (?:the|"
    r"an) example|role-?play|"
    r"as the (?:song|saying|poem) goes|the joke|once upon)|\bsubject:|"
    r"\bin (?:the|my|this|a|our) (?:story|book|novel|game|film|movie|dream|song|poem|play|scene|joke|example)\b",
    re.IGNORECASE,
)
"""A message that is about a text, or supposes something."""
_ABOUT_TEXT = re.compile(
    r"^\s*dear\b|```|\b(?:proofread|translate|rewrite|rephrase|paraphrase|summari[sz]e|"
    r"(?:edit|correct|check|improve|fix) (?:this|the following|my)|(?:this|following) (?:text|"
    r"sentence|paragraph|e-?mail|letter|"
    r"message|bio)|hypothetically|in theory|in this scenario|role-?play|for example|if only|april fool)",
    re.IGNORECASE,
)
_REPORTED = re.compile(r"[,\"”]\s*(?:he|she|they|[A-Z][a-z]+) (?:said|says|wrote|told|replied|asked|shouted|sang)\b")
_SPEAKER = re.compile(r"(?:^|[.!?]\s+)(?!Correction|Update|Edit|Note|PS|Moved)[A-Z][a-z]+:\s+(?:I|My)\b")
_TAKEN_BACK = re.compile(
    r"(?<=\w)[,.;!–-]\s*(?:i mean|sorry|no wait|wait,? no|just kidding|kidding|jk)\b|\b(?:just kidding|jk)\b",
    re.IGNORECASE,
)
_END = re.compile(r"(?<=[.!?…])[\"”')]*\s+|\n+|(?<=[.!?])(?=[A-Z][a-z])|;\s+")
_ISNT = re.compile(
    r"\b(my [\w -]{2,20}?) (?:isn['’]?t|is not|wasn['’]?t|was not) [^,;]+[,;] (?:but |it['’]?s |it is )+", re.IGNORECASE
)
_START = re.compile(
    r"^|(?:,|:|\s[-–—]|\()\s*|\s(?:and|but|so|while|because|though|although|since|yet)\s", re.IGNORECASE
)
_FILLER = re.compile(
    r"(?:(?:hi|hello|hey|heya|well|so|oh|ah|ok|okay|btw|by the way|actually|no|nope|nah|yes|yeah|"
    r"yep|sorry|and|but|also|now|"
    r"anyway|fyi|honestly|remember(?: that)?|(?:it )?turn(?:s|ed) out(?: that)?|finally|update|"
    r"correction|i misspoke|as i said|"
    r"in fact|of course|again|these days|nowadays|currently|right now|meanwhile|note that|please note(?: that)?|thanks|"
    r"thank you|recently|yesterday|last (?:week|weekend|month|year|spring|summer|autumn|fall|"
    r"winter)|(?:as of|since|in|on|last) "
    r"(?:january|february|march|april|may|june|july|august|september|october|november|december|"
    r"monday|tuesday|wednesday|"
    r"thursday|friday|saturday|sunday|spring|summer|autumn|winter|(?:19|20)\d\d)|(?:a|two|three|four|five|six|\d+) "
    r"(?:days?|weeks?|months?|years?) ago|i (?:just |recently )?(?:found out|learned|learnt)(?: "
    r"recently)?(?: that)?|good (?:morning|evening|day|afternoon)|just so you know|for the record|"
    r"my bad|oops|hm+|then)[\s,.:!–-]+)*",
    re.IGNORECASE,
)
_SUPPOSED = re.compile(
    r"\b(?:if|unless|suppose|imagine|pretend|wish|would|could|might|maybe|perhaps|whether|when|"
    r"once|until|before|dream(?:ed|t)?|"
    r"say(?:s|ing)?|said|told|tells|asked|asks|wrote|writes|claims?|claimed|thinks?|thought|"
    r"according|heard|guess|joke[ds]?|"
    r"everyone|everybody|nobody|someone|people|who|that|feels? like)\b",
    re.IGNORECASE,
)
"""Words before a clause that make it something else than a statement."""


def _without_quotes(text: str) -> str | None:
    """The message without what it quotes; None where it is about a text, or supposes something."""
    if any(each.search(text) for each in (_FOREIGN, _ABOUT_TEXT, _SPEAKER, _REPORTED)):
        return None
    return _QUOTED.sub(' "" ', text)


def _straightened(sentence: str) -> str:
    """Return "My name isn't Karen, it's Karin" as "My name is Karin"."""
    return _ISNT.sub(r"\1 is ", sentence).replace("’", "'")


def _in_sentence(sentence: str, *, plain: bool, message: str, known: frozenset[str]) -> Iterator[SlotStatement]:
    corrects = _CORRECTS.search(message) is not None
    for clause in own_clauses(sentence):
        for rule in _RULES:
            if match := rule.pattern.match(clause):
                values = list(rule.read(_Read(clause, match, plain, sentence, known)))
                for slot, value in values:
                    yield SlotStatement(slot, value, rule.ended, _since(sentence), corrects)
                if values:
                    break


def own_clauses(sentence: str) -> Iterator[str]:
    """The clauses of a sentence in which its speaker states something of themselves, now."""
    for start in islice(_START.finditer(sentence), _MOST_CLAUSES):
        if _SUPPOSED.search(sentence[: start.start()]):
            return
        filler = _FILLER.match(sentence, start.end())
        clause = sentence[filler.end() if filler else start.end() :]
        if _FIRST_PERSON.match(clause):
            yield clause


_FIRST_PERSON = re.compile(
    r"(?:I|i|im|we|my|our|the name|call me|please|you can|everyone|everybody|people|they)\b", re.IGNORECASE
)
_CORRECTS = re.compile(
    r"\b(?:correction|actually|misspoke|mistyped|mistake|wrong|oops|in fact|not \w+[,.]|sorry)\b|,? not \w+",
    re.IGNORECASE,
)
_SINCE = re.compile(
    r"\b(?:since [^,.;!]{3,30}|(?:last|this) (?:week|weekend|month|year|monday|tuesday|wednesday|"
    r"thursday|friday|saturday|sunday|"
    r"spring|summer|autumn|fall|winter|january|february|march|april|may|june|july|august|september|october|november|"
    r"december)|yesterday|today|(?:in|on) (?:january|february|march|april|may|june|july|august|"
    r"september|october|november|"
    r"december|spring|summer|autumn|winter|(?:19|20)\d\d)\b[^,.;!]{0,8}|(?:a|an|one|two|three|four|five|six|\d+) "
    r"(?:days?|weeks?|months?|years?) ago)",
    re.IGNORECASE,
)


def _since(sentence: str) -> str:
    found = _SINCE.search(sentence)
    return found[0] if found else ""


# --- rules -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Read:
    """A clause that fits a rule, and what is around it."""

    clause: str
    match: re.Match[str]
    plain: bool
    """True if the whole message is in lower case."""
    sentence: str
    known: frozenset[str]

    @property
    def rest(self) -> str:
        return self.clause[self.match.end() :]


Values = Iterable[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    read: Callable[[_Read], Values]
    ended: bool = False


def _rule(pattern: str, read: Callable[[_Read], Values], *, ended: bool = False) -> _Rule:
    return _Rule(re.compile(pattern, re.IGNORECASE), read, ended)


def _one(slot: str, parse: Callable[[str], str]) -> Callable[[_Read], Values]:
    return lambda read: [(slot, value)] if (value := parse(read.rest)) else []


def _each_of(slot: str, parse: Callable[[str], Sequence[str]]) -> Callable[[_Read], Values]:
    return lambda read: [(slot, value) for value in parse(read.rest)]


_DWELLING = re.compile(
    r"(?:an?|the|(?:my|our) own)\s+(?:[\w-]+\s+){0,3}?(?:flat|apartment|house|room|studio|place|cottage|loft|bungalow|"
    r"condo|flatshare|houseshare|dorm|dormitory|farmhouse|houseboat|villa)\s+(?:here\s+)?in\s+",
    re.IGNORECASE,
)
""" "I live in a shared flat in Porto": in Porto."""


def _home(read: _Read) -> Values:
    dwelling = _DWELLING.match(read.rest)
    value = place_in(read.rest[dwelling.end() :] if dwelling else read.rest, plain=read.plain)
    return [("home", value)] if value else []


def _working(read: _Read) -> Values:
    rest = re.sub(r"^an? (?:[\w-]+ ){0,4}(?:called|named) ", "", read.rest)
    if rest != read.rest and (value := org_in(rest)):
        yield "employer", value
    elif value := org_in(read.rest):
        yield "employer", value
        after = read.rest[len(value) :]
        if (role := re.search(r"^\W*(?:the\s)?.{0,3}\bas (?:an? )", after)) and (
            job := job_in(after[role.end() :], any_word=True)
        ):
            yield "job", job


def _worked_as(read: _Read) -> Values:
    if job := job_in(read.rest, any_word=True):
        yield "job", job
        after = read.rest[len(job) :]
        if (at := re.match(r"\s+(?:at|for)\s+", after)) and (place := org_in(after[at.end() :])):
            yield "employer", place


def _left(read: _Read) -> Values:
    """Read "I left X": the employer where that is known to be one, or where the rest is about work."""
    value = org_in(read.rest)
    if value and (
        value.casefold() in read.known or re.search(r"\bwork|\bjob\b|\bcompany\b", read.sentence, re.IGNORECASE)
    ):
        yield "employer", value


def _ended_employer(read: _Read) -> Values:
    value = org_in(read.rest)
    if not value and (word := re.match(r"(?:the\s+)?([a-z]+)\s*[.!]?$", read.rest)) and word[1] not in NO_NAME:
        value = word[1]
    return [("employer", value)] if value else []


def _kin(read: _Read) -> Values:
    noun = read.match["kin"].lower()
    value = name_in(read.rest, plain=read.plain)
    return [(KIN[noun], value)] if value and noun in KIN else []


def _own_name(read: _Read) -> Values:
    value = name_in(read.rest, plain=read.plain)
    return [("name", value)] if value else []


def _introduced(read: _Read) -> Values:
    """Read "Hi, I'm Priya": a name only where somebody greets, or is glad to meet the bot."""
    greets = re.match(
        r"\W*(?:hi|hello|hey|hiya|heya|good (?:morning|evening|afternoon|day))\b", read.sentence, re.IGNORECASE
    )
    if not (greets or re.search(r"nice to meet you", read.sentence, re.IGNORECASE)):
        return []
    value = name_in(read.rest, most=3)
    if value.casefold() in LANGUAGES or (value and re.match(r"'s\b", read.rest[len(value) :])):
        return []
    after = read.rest[len(value) :].lstrip()
    return (
        [("name", value)]
        if value and (not after or after[0] in ",.!;:(" or after.startswith(("and ", "from ")))
        else []
    )


def _nickname(read: _Read) -> Values:
    value = name_in(read.rest, most=2)
    return [("nickname", value)] if value and value.casefold() not in LANGUAGES else []


_I = r"(?:I|we)\b"
_ADVERB = (
    r"(?:\s+(?:now|currently|still|just|also|actually|finally|really|happily|both|already|do|then|"
    r"recently|permanently|officially))*"
)
_ROLE = r"(?:severely|highly|very|really|quite|a (?:little|bit)|extremely|deadly|slightly|mildly|badly|also|pretty)"
_NO = r"(?:\s+(?:do not|don't|dont|no longer|am not|are not|aren't|'m not|'re not|do no longer)\b)"
_KIN = "|".join(sorted(map(re.escape, KIN), key=len, reverse=True))
_KINNED = rf"(?:my|our)(?:\s+(?:new|other|older|elder|little|younger|second|current|big|first|best))?\s+(?P<kin>{_KIN})"
_CALLED = (
    r"(?:\s+is\s+(?:now\s+)?(?:called|named)|'s\s+(?:called|named)|'?s?\s+name(?:\s+is|'s)|"
    r"\s+was\s+(?:called|named))\s+"
)
_RULES: tuple[_Rule, ...] = (
    _rule(rf"{_I}{_NO}\s+(?:live|living|reside|based) in\s+(?=.*)", _home, ended=True),
    _rule(rf"{_I}(?:'ve| have)?{_ADVERB}\s+moved out of\s+", _home, ended=True),
    _rule(
        rf"(?:{_I}(?:'ve| have)?{_ADVERB}\s+(?:live[d]?(?<!lived)|lived(?=.*\bsince\b)|been "
        rf"living|reside)|{_I}(?:'m| am|'re| are)"
        rf"{_ADVERB}\s+(?:living|based)|im\s+(?:now\s+)?(?:living|based))\s+in\s+",
        _home,
    ),
    _rule(
        rf"{_I}(?:'ve| have)?{_ADVERB}\s+(?:moved|relocated)(?:\s+(?:back|over|here|"
        rf"on))?(?:\s+(?:from\s+[\w .'-]{{2,30}}?))?\s+(?:to|into(?=\s+(?:an?|the|my own|our own)\s))\s+",
        _home,
    ),
    _rule(rf"{_I}{_NO}\s+(?:work|working) (?:at|for)\s+", _ended_employer, ended=True),
    _rule(rf"{_I}(?:'ve| have)?{_ADVERB}\s+(?:quit|left|resigned from)\s+my job at\s+", _ended_employer, ended=True),
    _rule(rf"{_I}(?:'ve| have)?{_ADVERB}\s+left\s+", _left, ended=True),
    _rule(
        rf"(?:{_I}{_ADVERB}\s+work|{_I}(?:'ve| have) been working|{_I}(?:'m| "
        rf"am){_ADVERB}\s+working|{_I}(?:'ve| have)?{_ADVERB}\s+"
        rf"started\s+working|I(?:'ve| have)?{_ADVERB}\s+(?:started(?: a new job)?|got a (?:new "
        rf")?job)(?=\s+at\b))\s+(?:at|for)\s+",
        _working,
    ),
    _rule(r"(?:my|our)\s+(?:new\s+|current\s+)?employer is(?:\s+now)?\s+", _one("employer", org_in)),
    _rule(
        rf"(?:{_I}{_ADVERB}\s+work|{_I}(?:'m| am){_ADVERB}\s+working|{_I}(?:'ve| have) been "
        rf"working|{_I}(?:'ve| have)?{_ADVERB}\s+"
        rf"got a (?:new )?job|{_I}(?:'ve| have)?{_ADVERB}\s+started(?: working)?)\s+as\s+an?\s+",
        _worked_as,
    ),
    _rule(
        rf"(?:I'm|I am|im|I've been|I have been){_ADVERB}\s+an?\s+",
        _one("job", lambda rest: job_in(rest, any_word=False)),
    ),
    _rule(
        rf"(?:I'm|I am|im){_ADVERB}(?:\s+(?:not|no longer)(?:\s+{_ROLE})?)\s+allergic to\s+",
        _each_of("allergy", allergens_in),
        ended=True,
    ),
    _rule(rf"(?:I'm|I am|im){_ADVERB}(?:\s+{_ROLE})*\s+allergic to\s+", _each_of("allergy", allergens_in)),
    _rule(
        r"(?:I have|I've got|I've|I do have)\s+an?\s+(?:(?:severe|bad|mild|serious)\s+)?(?=[\w "
        r"]{2,24}allerg(?:y|ies)\b)",
        _each_of("allergy", lambda rest: allergens_in(rest.split(" allerg")[0])),
    ),
    _rule(
        r"(?:I have|I've got)\s+an?\s+(?:(?:severe|bad|mild|serious)\s+)?allergy to\s+",
        _each_of("allergy", allergens_in),
    ),
    _rule(r"I(?:'ve| have)?\s+developed\s+an\s+allergy to\s+", _each_of("allergy", allergens_in)),
    _rule(rf"{_I} used to live in\s+", _home, ended=True),
    _rule(rf"{_I} used to work (?:at|for)\s+", _ended_employer, ended=True),
    _rule(rf"{_I}{_ADVERB}\s+speak\s+", _each_of("speaks", languages_in)),
    _rule(rf"(?:I'm|I am){_ADVERB}\s+fluent in\s+", _each_of("speaks", languages_in)),
    _rule(r"my (?:mother tongue|native language|first language) is\s+", _each_of("speaks", languages_in)),
    _rule(
        rf"(?:I(?:'ve| have)?{_ADVERB}\s+(?:stopped|quit|gave up|given up)|(?:I'm|I am) (?:not|no "
        rf"longer)|I no longer)\s+"
        r"(?:learning|learn|studying)\s+",
        _each_of("learns", languages_in),
        ended=True,
    ),
    _rule(
        rf"(?:(?:I'm|I am|im|we're){_ADVERB}\s+(?:learning|studying)|{_I}(?:'ve| "
        rf"have)?{_ADVERB}\s+(?:started|begun|began)\s+"
        r"(?:to\s+learn|to\s+study|learning|studying))\s+",
        _each_of("learns", languages_in),
    ),
    _rule(
        r"(?:my\s+(?:new\s+|current\s+)?(?:(?:tele)?phone|mobile|cell|"
        r"cellphone)(?:\s+number)?(?:\s+is|'s)(?:\s+now)?|my\s+(?:new\s+)?number(?:\s+is|'s)"
        r"(?:\s+now)?|you can (?:reach|call|text) me (?:at|on|under)|(?:please )?call me (?:at|on))\s+:?\s*",
        _one("phone", phone_in),
    ),
    _rule(
        r"(?:my\s+(?:new\s+|current\s+)?e-?mail(?:\s+address)?\s+is(?:\s+now)?|you can (?:reach|"
        r"write(?: to)?|e-?mail|mail) me (?:at|to|on)|"
        r"you can write to me at)\s+:?\s*",
        _one("email", email_in),
    ),
    _rule(r"my birthday(?:\s+is|'s)(?:\s+on)?\s+", _one("birthday", date_in)),
    _rule(r"I was born on\s+", _one("birthday", date_in)),
    _rule(r"my (?:full |real )?name(?:\s+is|'s)\s+", _own_name),
    _rule(r"(?:please\s+)?(?:just\s+)?call me\s+", _nickname),
    _rule(
        r"(?:you can|everyone|everybody|people|they all|my friends|friends|my "
        r"family)(?:\s+(?:just|still|all))?\s+calls? me\s+",
        _nickname,
    ),
    _rule(r"I go by\s+", _nickname),
    _rule(r"(?:I'm|I am)\s+", _introduced),
    _rule(rf"{_KINNED}{_CALLED}", _kin),
    _rule(
        rf"(?:I|we)(?:'ve)? (?:have|got|adopted)\s+(?:an?|another|"
        rf"one)\s+(?:[\w-]+\s+)?(?P<kin>{_KIN})\s+(?:called|named)\s+",
        _kin,
    ),
)

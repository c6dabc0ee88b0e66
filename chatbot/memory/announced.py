"""Changes that a later sentence announces: it says that a thing ended, or has another value now. Pure, by rule.

This asks less of the form of both sentences than `chatbot.memory.changes`: "Our rent is 870 a month" is outdated by
"The landlord put the rent up to 940", and "My dentist is Dr. Petrov" by "Dr. Petrov retired". The later one has to
announce the change in words, and to name the thing. In English.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from chatbot.memory.denial import contradict, takes_back
from chatbot.stores.text.analysis import terms

_ENDED = re.compile(
    r"\b(?:cancel+ed|retired|resigned|sold|gave up|given up|giving up|broke up|split up|quit|stopped|"
    r"(?:is|are|was) (?:off|over|gone|history)|called off|fell through|died|passed away|closed|ended|no more|no longer|"
    r"sank|ran away|went bankrupt|shut down|burn(?:t|ed) down|(?:was|were|got) stolen|"
    r"threw out|thrown out|got rid of|dropped out|moved away|moved out|left|replaced|gave away|given away)\b",
    re.IGNORECASE,
)
_ENDS_SOMETHING = re.compile(
    r"(?<!was )(?<!were )(?<!is )(?<!are )(?<!got )(?<!been )"
    r"\b(?:cancel+ed|sold|gave up|giving up|quit|stopped|threw out|got rid of|left|replaced|gave away)\s+"
    r"(?!(?:last|this|yesterday|today|early|late|for good|in|on|at|for|after|before|because|and|so|me|us)\b)\w",
    re.IGNORECASE,
)
"""An ending by somebody who stands before it, of what stands behind it."""
_CHANGED = re.compile(
    r"\b(?:now|nowadays|these days|any ?more|instead|from now on|from (?:this|next) \w+ on|new rule|"
    r"(?:moved|raised|increased|lowered|reduced|halved|doubled|tripled|cut|changed|postponed|rescheduled|shifted|"
    r"switched|promoted|extended|shortened|put|brought|went|gone|go|goes|down|up)\b[^.!?]{0,40}?"
    r"\b(?:up |down |back |forward )?(?:to|from))\b",
    re.IGNORECASE,
)
_BESIDES = re.compile(r"\b(?:also|too|as well|another|besides|in addition|additionally|still|again)\b", re.IGNORECASE)
_PAST = re.compile(
    r"\b(?:was|were|had|used to|yesterday|ago|last (?:year|month|week|night)|went|visited|bought|met|saw|ran|flew|paid|"
    r"watched|took|got|turned)\b",
    re.IGNORECASE,
)
_REACH = 3
"""Most words between what ended and the word for its end."""
_NEAR = 0.3
"""The share of its topics that the shorter one of two sentences with other values has in common with the longer one."""
_DENIED = 0.6
"""The same of a sentence and its denial."""
_MOST = 0.5
"""The same of what a sentence says and what another says has ended, where no name is among it."""
_COMMON = frozenset(
    terms(
        "day week weekend month year morning evening afternoon night today time lot thing people good one back home "
        "new go live work have get take call name little big cost pay need want start begin end open close meet leave "
        "use buy make say tell know think like"
    )
)
"""Terms that two sentences may share without being about the same thing."""
KIN = {
    **{
        each: each
        for each in """
    wife husband partner girlfriend boyfriend fiance spouse mother father sister brother son daughter child baby
    uncle aunt cousin nephew niece grandmother grandfather grandson granddaughter stepmother stepfather
    mother-in-law father-in-law sister-in-law brother-in-law boss manager friend colleague flatmate roommate
    landlord landlady doctor dentist therapist nanny neighbour teacher tutor dog cat puppy kitten rabbit parrot
    horse pony hamster turtle tortoise fish bird budgie goldfish lizard snake ferret goat cow hen
""".split()  # noqa: SIM905 - forty pairs of quotes would be unreadable
    },
    **dict.fromkeys(("mum", "mom", "mama"), "mother"),
    **dict.fromkeys(("dad", "papa"), "father"),
    **dict.fromkeys(("grandma", "granny", "nana"), "grandmother"),
    **dict.fromkeys(("grandpa", "grandad", "granddad"), "grandfather"),
    "fiancé": "fiance",
    "fiancée": "fiance",
    "fiancee": "fiance",
    "neighbor": "neighbour",
    "kid": "child",
}
"""Relatives, people and animals of a person, each with the noun that stands for it."""
_KIN = re.compile(rf"\b(?:my|our|his|her|their)\s+(?:\w+\s+)?({'|'.join(map(re.escape, KIN))})\b")
_NUMBERS = "one two three four five six seven eight nine ten eleven twelve"
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
_VALUES = {
    "number": re.compile(rf"\b\d+(?:[.:,]\d+)*|\b(?:{_NUMBERS.replace(' ', '|')})\b", re.IGNORECASE),
    "ordinal": re.compile(rf"\b(?:{_ORDINALS.replace(' ', '|')})\b", re.IGNORECASE),
    "weekday": re.compile(r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)day", re.IGNORECASE),
}


@dataclass(frozen=True)
class Sentence:
    """A sentence; what it says is read with the first use, and once."""

    text: str

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Its words, in lower case."""
        return tuple(re.findall(r"[\w'’-]+", self.text.casefold()))

    @cached_property
    def terms(self) -> frozenset[str]:
        """Its search terms."""
        return frozenset(terms(self.text))

    @cached_property
    def topics(self) -> frozenset[str]:
        """The terms that it is about."""
        named = {term for held in self.values.values() for value in held for term in terms(value)}
        return self.terms - _COMMON - named

    @cached_property
    def names(self) -> frozenset[str]:
        """Terms of words with a capital letter inside the sentence."""
        found = re.findall(r"(?<=[\w,]\s)[A-Z][\w-]+|[A-Z]\w+(?=\s[A-Z])", self.text)
        return frozenset(term for word in found for term in terms(word))

    @cached_property
    def others(self) -> frozenset[str]:
        """Relatives and animals of the speaker that it names."""
        return frozenset(KIN[each] for each in _KIN.findall(self.text.casefold()))

    @cached_property
    def values(self) -> dict[str, frozenset[str]]:
        """The numbers and weekdays that it names, by kind."""
        found = {kind: frozenset(map(str.casefold, form.findall(self.text))) for kind, form in _VALUES.items()}
        return {kind: held for kind, held in found.items() if held}

    @cached_property
    def endings(self) -> tuple[re.Match[str], ...]:
        """The words that say that something ended."""
        return tuple(_ENDED.finditer(self.text))

    @cached_property
    def changes(self) -> bool:
        """True if it says of something that it is another way now."""
        return _CHANGED.search(self.text) is not None and not self.adds

    @cached_property
    def adds(self) -> bool:
        """True if it states something besides."""
        return _BESIDES.search(self.text) is not None

    @cached_property
    def is_past(self) -> bool:
        """True if it tells of the past."""
        return _PAST.search(self.text) is not None

    @cached_property
    def is_turn(self) -> bool:
        """True if it is told as something new, or takes something back."""
        return _TURN.search(self.text) is not None


@lru_cache(maxsize=4_096)
def sentence(text: str) -> Sentence:
    """Return the sentence, the same one each time, so that it is read once."""
    return Sentence(text)


def announces(later: Iterable[str], earlier: Iterable[str]) -> bool:
    """Return whether a later sentence announces a change of what an earlier sentence states."""
    old = [sentence(each) for each in earlier if not each.rstrip().endswith("?")]
    new = [sentence(each) for each in later if not each.rstrip().endswith("?")]
    return any(_ends(one, other) or _revalues(one, other) or _denies(one, other) for one in new for other in old)


def _is_of_another(new: Sentence, old: Sentence) -> bool:
    """Return whether one sentence is about a person whom the other does not mention."""
    if not new.others <= old.others:
        return True
    unnamed = old.others - new.others - frozenset(new.words)
    return bool(unnamed) and old.names.isdisjoint(new.topics)


def _ends(new: Sentence, old: Sentence) -> bool:
    """Return whether it says that the other's subject ended: a name of it, or most of it, is next to that word."""
    if not new.endings or old.is_past or old.endings:
        return False
    for ended in new.endings:
        before = re.findall(r"[\w'’-]+", new.text[: ended.start()])[-_REACH:]
        after = re.findall(r"[\w'’-]+", new.text[ended.end() :])[:_REACH]
        beside = frozenset(terms(" ".join(after)))
        if not _ENDS_SOMETHING.match(new.text, ended.start()):
            beside |= frozenset(terms(" ".join(before)))
        shared = beside & old.topics
        if (shared & old.names and new.others <= old.others) or (
            len(shared) >= max(1, _MOST * len(old.topics)) and not _is_of_another(new, old)
        ):
            return True
    return False


def _revalues(new: Sentence, old: Sentence) -> bool:
    """Return whether it announces another number, ordinal or weekday of the other's subject."""
    if not new.changes or old.is_past:
        return False
    if _is_of_another(new, old):
        return False
    shared = new.topics & old.topics
    if not shared or len(shared) < _NEAR * min(len(new.topics), len(old.topics)):
        return False
    kinds = new.values.keys() & old.values.keys()
    return any(new.values[kind].isdisjoint(old.values[kind]) for kind in kinds)


def _denies(new: Sentence, old: Sentence) -> bool:
    """Return whether it denies the other sentence and repeats most of it."""
    if not old.topics or not takes_back(old.text, new.text) or _is_of_another(new, old):
        return False
    if old.names and new.names and old.names.isdisjoint(new.names):
        return False
    return len(new.topics & old.topics) >= max(2, _DENIED * len(old.topics))


# --- what may have changed -------------------------------------------------------------------------------------------

_NEWS = re.compile(
    r"\b(?:now|nowadays|these days|any ?more|instead|since|from now on|no longer|at last|finally|turned out|turns out|"
    r"not|never|nothing|none|switched|swapped|changed|moved|replaced|bought|got|started|became|become|new|after all|"
    r"until further notice|going to|is being|are being)\b|n't\b|"
    r"\b(?:has|have|'ve)\s+(?:just\s+|already\s+|finally\s+)?\w+(?:ed|en|ne|de|me|[dlmnptg]t|un|id|ld|ut)\b",
    re.IGNORECASE,
)
"""Words and tenses in which people tell something new; that it is about the other one is for its meaning to say."""
_FOREIGN = re.compile(
    r"^(?P<who>[A-Z][a-zé-]+)(?:'s\s|\s+(?:now\s+|also\s+|still\s+)?(?:is|has|was|does|did|had|\w+(?:s|ed))\b)"
)
_NOBODY = frozenset(
    (
        *("everything", "nothing", "everyone", "life", "work", "school", "this", "that", "it", "he", "she", "they"),
        *("we", "there", "what", "who", "today", "tomorrow", "all", "my", "our", "the", "his", "her", "their", "these"),
        *("those", "some", "many", "most", "both", "each", "every", "no", "so", "and", "but"),
    )
)
"""Capitalised words at the beginning of a sentence that are no names."""
_EVENTS = (
    (
        re.compile(
            r"\b(?:i|we)(?:'m| am|'re| are)? (?:live|living|rent|share|stay)\b|"
            r"\b(?:my|our) (?:flat|house|apartment|room|place|studio|address)\b",
            re.IGNORECASE,
        ),
        re.compile(
            r"\bunpacked\b|\bthe (?:move|removal) (?:is|was|went)\b|\bmov(?:ed|ing) (?:in|into|house|out|to)\b|"
            r"\bsettled in(?:to)?\b|\bnew (?:flat|home|place|apartment|address|house|neighbou?rs|windows?)\b|"
            r"\b(?:a|our|my) (?:flat|room|apartment|house|place|home) of (?:my|our) own\b",
            re.IGNORECASE,
        ),
    ),
    (
        re.compile(
            r"\bI(?:'m| am)? (?:work|working|teach|wait tables|run a|drive (?:a )?(?:bus|taxi|truck|lorry)|am an?)\b|"
            r"\bmy (?:job|boss|employer|shifts?|ward|office)\b",
            re.IGNORECASE,
        ),
        re.compile(
            r"\b(?:handed in|gave(?: in)?) my notice\b|\bnew job\b|\b(?:hired|fired|transferred|promoted) me\b|"
            r"\blaid off\b|\blet me go\b|\bmade redundant\b|\b(?:for|as) a living\b|\bfreelanc|\bself-employed\b|"
            r"\bquit my job\b|\bfirst day at\b|\bretired\b",
            re.IGNORECASE,
        ),
    ),
)
"""Words about one's home and work, and about events that change them."""


_TURN = re.compile(
    rf"{_NEWS.pattern}|\b(?:no|nobody|none|wrong|mistake|my bad|(?:take|took) (?:that|it) back|forget|scrap|"
    r"nah|nope|dont|doesnt|didnt|cant|cannot|wont|isnt|arent|wasnt|werent|hasnt|havent|off|till?|until|gave up|"
    r"given up|sold|left|retired|closed|cancel+ed|all along|the whole time|false alarm|misread|mixed up)\b",
    re.IGNORECASE,
)
"""Words of news, and others in which people take back or turn what they said, also without apostrophes."""
_CLEAR_LEAD = 0.25
"""The lead over all other later rows from which on no word of news is asked for."""


def may_change(later: Iterable[str], earlier: Iterable[str], lead: float = 0.0) -> bool:
    """Return whether a later text may announce a change of an earlier one.

    `lead` is how much nearer in meaning it is than all other later ones, 0 where it does not stand out.
    That is less than `announces`: it is reason to tell both, the later one first.
    """
    old = [sentence(each) for each in earlier if each and not each.rstrip().endswith("?")]
    new = [sentence(each) for each in later if each and not each.rstrip().endswith("?")]
    return any(_turns(one, other, lead) or _happens(one, other) for one in new for other in old)


def _turns(new: Sentence, old: Sentence, lead: float) -> bool:
    """Return whether a sentence that stands out tells of a turn; with a clear lead, whatever it says."""
    if not lead or not old.topics or _repeats(new, old):
        return False
    if lead >= _CLEAR_LEAD:
        return True
    return _is_about(new, old) and (new.is_turn or _differs(new, old) or contradict(old.text, new.text))


def _happens(new: Sentence, old: Sentence) -> bool:
    """Return whether it tells of an event that changes one's home or work, which the other is about."""
    if not any(had.search(old.text) and event.search(new.text) for had, event in _EVENTS):
        return False
    return _is_about(new, old) and not _repeats(new, old)


def _is_about(new: Sentence, old: Sentence) -> bool:
    """Return whether it may be about the same thing and time as the other."""
    return not (new.adds or old.is_past or old.endings or _is_foreign(new, old))


def _repeats(new: Sentence, old: Sentence) -> bool:
    return old.terms <= new.terms and not contradict(old.text, new.text)


def _differs(new: Sentence, old: Sentence) -> bool:
    """Return whether it names another number, ordinal or weekday, for no other time."""
    kinds = new.values.keys() & old.values.keys()
    return not new.is_past and any(new.values[kind].isdisjoint(old.values[kind]) for kind in kinds)


def _is_foreign(new: Sentence, old: Sentence) -> bool:
    """Return whether a sentence is about somebody whom the other one does not name."""
    if not new.others <= old.others:
        return True
    found = _FOREIGN.match(new.text)
    return bool(found) and found["who"].casefold() not in _NOBODY.union(old.words)  # type: ignore[index]

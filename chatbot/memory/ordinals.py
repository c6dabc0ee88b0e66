"""Sessions that a question names by their place: "session 3", "the first time we talked", "two sessions ago".

The place is counted when it is asked for, over the rows that the caller may see: it tells nothing of other sessions,
and is right whatever was deleted since. A session counts from its first row on; one of which nothing was remembered
does not. A question without a place costs one search for a word; one with a place reads the rows up to that session,
from the first row on, or from the last one back.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from chatbot.memory.scope import Scope
from chatbot.stores.access import View
from chatbot.stores.observation import STATUSES
from chatbot.stores.query import Filter, Match
from chatbot.stores.text.date_forms import ordinal
from chatbot.stores.text.date_words import CARDINALS, ORDINALS, either

_PAGE = 200
_MOST_ROWS = 10_000
"""Most rows that are counted; a session further off is not found."""
_MOST_RAISED = 300
"""Number of rows of a session that are raised."""

_HINT = re.compile(r"session|conversation|chat|talk|spoke", re.IGNORECASE)
_LONGEST = 2_000
_SESSION = r"(?:session|conversation|chat)"
_TALKED = (
    r"(?:that\s+)?(?:we|you\s+and\s+i)\s+(?:last\s+)?(?:talked|spoke|chatted|had\s+a\s+(?:chat|talk|conversation))"
)
_NTH = rf"(?P<nth>\d{{1,4}}(?:st|nd|rd|th)|{either(ORDINALS)})"
_CARDINAL = rf"(?P<number>\d{{1,4}}|{either(CARDINALS)})"
_LAST = r"(?:last|previous|latest|most\s+recent)"


def _from_the_end(match: re.Match[str]) -> int:
    return -ordinal(match["number"])


@cache
def _places() -> list[tuple[re.Pattern[str], Callable[[re.Match[str]], int]]]:
    return [
        (re.compile(rf"\b(?:the\s+)?{_SESSION}\s+before\s+(?:the\s+)?last\b"), lambda _: -2),
        (re.compile(r"\bthe\s+time\s+before\s+(?:the\s+)?last\b"), lambda _: -2),
        (re.compile(rf"\b(?:second[\s-]to[\s-]last|penultimate)\s+{_SESSION}\b"), lambda _: -2),
        (re.compile(rf"\b{_CARDINAL}\s+{_SESSION}s\s+(?:ago|back|earlier)\b"), _from_the_end),
        (re.compile(rf"\b(?:our|the)\s+{_LAST}\s+(?:{_SESSION}|talk)\b"), lambda _: -1),
        (re.compile(rf"\b(?:in|during|from|of)\s+{_LAST}\s+{_SESSION}\b"), lambda _: -1),
        (re.compile(rf"\b(?:when\s+we\s+last\s+(?:talked|spoke|chatted)|last\s+time\s+{_TALKED})\b"), lambda _: -1),
        (re.compile(rf"\b{_NTH}\s+(?:{_SESSION}\b|time\s+{_TALKED})"), lambda match: ordinal(match["nth"])),
        (
            re.compile(rf"\b{_SESSION}\s+(?:number\s+|no\.?\s*|nr\.?\s*|#\s*)?{_CARDINAL}\b"),
            lambda match: ordinal(match["number"]),
        ),
    ]


def session_places(text: str) -> list[int]:
    """The places that the text names, each once: 1 is the first session, -1 the last one before this one."""
    if not _HINT.search(text[:_LONGEST]):
        return []
    plain = text[:_LONGEST].lower()
    found: list[int] = []
    for pattern, place_of in _places():
        found += map(place_of, pattern.finditer(plain))
        plain = pattern.sub(" ; ", plain)
    return [place for place in dict.fromkeys(found) if place]


async def sessions_named(scope: Scope, view: View, text: str, wanted: Filter) -> list[str]:
    """The ids of the sessions that the text names by their place among those that the caller sees.

    Sessions are in the order of their first rows; counted from the end, in that of their last rows, and without the one
    that goes on. Rows of every status count, except forgotten ones.
    """
    places = session_places(text)
    ahead = await _in_order(scope, view, wanted, max([0, *places]), is_backward=False)
    back = await _in_order(scope, view, wanted, -min([0, *places]), is_backward=True)
    held = [(ahead, place - 1) if place > 0 else (back, -place - 1) for place in places]
    return list(dict.fromkeys(sessions[at] for sessions, at in held if at < len(sessions)))


async def rows_of_named_sessions(scope: Scope, view: View, text: str, wanted: Filter) -> list[Match]:
    """Return the rows of the sessions that the text names by their place; they count like rows of an asked date."""
    found: list[Match] = []
    for session in await sessions_named(scope, view, text, wanted):
        if wanted.session_id in {None, session}:
            page = await scope.store.find(
                view, replace(wanted, session_id=session), order="created", ascending=True, limit=_MOST_RAISED
            )
            found += [Match.of(row) for row in page.rows]
    return found


async def _in_order(scope: Scope, view: View, wanted: Filter, count: int, *, is_backward: bool) -> list[str]:
    """The first `count` sessions that rows are of, from the one end of memory or the other."""
    everything = Filter(agent_id=wanted.agent_id, statuses=tuple(each for each in STATUSES if each != "deleted"))
    found: dict[str, None] = {}
    after: str | None = None
    for _ in range(_MOST_ROWS // _PAGE if count else 0):
        page = await scope.store.find(
            view, everything, order="created", ascending=not is_backward, limit=_PAGE, after=after
        )
        found |= dict.fromkeys(row.session_id for row in page.rows if row.session_id)
        if is_backward and scope.session_id:
            found.pop(scope.session_id, None)
        after = page.after
        if len(found) >= count or after is None:
            break
    return list(found)[:count]

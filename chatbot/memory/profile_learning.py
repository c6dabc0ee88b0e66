"""Filling the slots of a profile: from what a person says, from facts that a model took out of it, or by hand.

Only the person's own principal changes a slot, where they speak here: a tool proposes, and imports, files and what the
bot says are evidence alone. A value takes the place of the one before it; one that was said earlier and is written
later is history at once.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from chatbot.memory.health import tells_of_health
from chatbot.memory.profile_lines import (
    CATEGORY,
    HEALTH,
    KEPT,
    PINNED,
    Line,
    lines_at,
    slot_rows,
    span_of,
)
from chatbot.memory.scope import Scope
from chatbot.memory.slot_words import PRIVATE, holds_several, title_of
from chatbot.memory.slots import SlotStatement, stated
from chatbot.memory.writing import AddResult, Draft, keep
from chatbot.redaction import redact
from chatbot.stores.access import SENSITIVITIES, Sensitivity
from chatbot.stores.errors import InvalidValue, StoreError
from chatbot.stores.fields import fold
from chatbot.stores.observation import KIND, SLOT, Observation, is_line
from chatbot.stores.query import Filter
from chatbot.stores.records import format_time
from chatbot.stores.row_events import HELD, Event
from chatbot.stores.text.dates import date_terms

logger = logging.getLogger(__name__)

PROPOSED = "proposed slot"
"""The kind of a value that a tool or a program proposes: it holds once the person accepts it."""
_BY_PERSON, _BY_RULE, BY_MODEL = "person", "rule", "model"
_THIRD = re.compile(
    r"^(?:the )?(?:user|person|speaker)(?P<verb>'s| does not| doesn't| no longer| [a-z]+)(?P<rest>\b.*)$",
    re.IGNORECASE | re.DOTALL,
)
_FIRST = {"'s": "my", "is": "I'm", "was": "I was", "has": "I have", "does not": "I don't", "doesn't": "I don't"}
"""First-person forms of verbs; other verbs lose the ending of the third person."""
_SPOKEN = frozenset({"chat", "agent", "user"})
"""Sources of exchanges that a person had here; of all others a statement is only evidence."""
_BEGINNING = 4
"""Letters in which two words must begin alike to be forms of one."""
_FILLING = frozenset(("a", "an", "and", "at", "in", "of", "the"))
_LEFT = re.compile(r"\bleft\b", re.IGNORECASE)
_MAY_STATE = re.compile(r"\b(?:i|i['’]m|im|we|my|our|me)\b", re.IGNORECASE)


async def learn(scope: Scope, drafts: Sequence[Draft], kept: Sequence[AddResult]) -> list[AddResult]:
    """Fill the slots of the caller's profile that exchanges state, if the caller is the person who speaks in them.

    Exchanges that tell of health become private.

    Tools have no right to chat, and imports and files are no talk: of these a statement is only evidence.
    """
    if "chat" not in scope.rights or "read" not in scope.rights:
        return []
    done = []
    for draft, row in zip(drafts, kept, strict=True):
        if draft.type != "exchange" or draft.source not in _SPOKEN or row.outcome not in {"added", "exact_dup"}:
            continue
        question = (draft.metadata or {}).get("question", "")
        if tells_of_health(draft.user_text, question):
            await _keep_private(scope, row.id)
        if question or _MAY_STATE.search(draft.user_text):
            done += await learn_from(scope, draft.user_text, question, row.id, draft.created_at)
    return done


async def state_by_hand(
    scope: Scope, slot: str, value: str, *, since: datetime | None, sensitivity: Sensitivity | None
) -> AddResult:
    """Give a slot a value that the person names. Raises `InvalidValue` for a time to come, and for a secret."""
    if kinds := redact(title_of(slot, value))[1]:
        raise InvalidValue(f"{slot!r:.80} would hold a secret ({', '.join(kinds)}): secrets are not kept")
    said = SlotStatement(slot, value)
    return await _state(scope, said, by=_BY_PERSON, said_at=scope.clock(), since=since, sensitivity=sensitivity)


async def learn_facts(scope: Scope, facts: Iterable[str], source: str, said_at: datetime) -> list[AddResult]:
    """Fill the slots that facts state which a model took out of an exchange, by the same rules and types.

    Only what they tell of the person who spoke counts: "The user lives in Lisbon". A value that is not in the words of
    the person, but in those of the bot or of nobody, is only proposed.
    """
    scope.check("read")
    done = []
    rows = await scope.store.get(scope.acting(SENSITIVITIES), [source])
    said = " ".join(row.user_text for row in rows if row.principal == scope.principal and row.source in _SPOKEN)
    for fact in facts:
        if text := in_first_person(fact):
            done += await learn_from(scope, text, "", source, said_at, by=BY_MODEL, said=said)
    return done


def is_in_words(value: str, said: str) -> bool:
    """Return whether each word of a value, or one that begins like it, is among the words said. Pure."""
    words = _words(said)
    return all(any(_begin_alike(each, word) for word in words) for each in _words(value))


def _words(text: str) -> list[str]:
    return [each for each in re.findall(r"\w+", fold(text)) if each not in _FILLING]


def _begin_alike(one: str, other: str) -> bool:
    length = max(1, min(len(one), len(other), _BEGINNING))
    is_number = one.isdecimal() and other.isdecimal()
    return one == other if is_number else one[:length] == other[:length]


def in_first_person(fact: str) -> str:
    """Return "The user lives in Lisbon" in the first person; empty if it is about another person. Pure."""
    told = _THIRD.match(fact.strip())
    if not told:
        return ""
    verb, rest = told["verb"].strip().lower(), told["rest"]
    if verb == "no longer":
        verb, _, rest = rest.strip().partition(" ")
        return f"I no longer {_plain(verb)} {rest}"
    first = _FIRST.get(verb) or f"I {_plain(verb)}"
    return first + re.sub(r"^ (?:his|her|their) ", " my ", rest)


def _plain(verb: str) -> str:
    """Return a verb without the ending of the third person."""
    if verb.endswith("ies"):
        return f"{verb[:-3]}y"
    return re.sub(r"(?<=[osxh])es$|(?<=[^s])s$", "", verb)


async def learn_from(
    scope: Scope,
    text: str,
    question: str,
    source: str,
    said_at: datetime | None,
    *,
    by: str = _BY_RULE,
    said: str | None = None,
) -> list[AddResult]:
    """Fill the slots that a text states, which the observation `source` keeps. Never raises for a refused slot.

    With the words `said` by the person, a value that is not in them is only proposed.
    """
    now = scope.clock()
    said_at = said_at or now
    if said_at > now or not (stated(text, question) or _LEFT.search(text)):
        return []
    rows = await slot_rows(scope, SENSITIVITIES)
    employers = [line.value for line in lines_at(rows, now, slot="employer") if not line.ended]
    done = []
    is_private = False
    for each in stated(text, question, employers=employers):
        if said is not None and not is_in_words(each.value, said):
            done += [] if each.ended else [await _proposed(scope, each)]
            continue
        since = _since(each, said_at)
        kept = await _state(scope, each, by=by, said_at=said_at, since=since, source=source, rows=rows)
        rows = []  # which have changed
        if kept.outcome != "skipped":
            done.append(kept)
            is_private = is_private or each.slot in PRIVATE
    if is_private:
        await _keep_private(scope, source)
    return done


async def _keep_private(scope: Scope, source: str) -> None:
    """Make the exchange that tells of health as private as the slot that it fills."""
    rows = await scope.store.get(scope.acting(SENSITIVITIES), [source])
    if not any(row.sensitivity == "public" for row in rows):
        return
    fields: dict[str, Any] = {"sensitivity": "private", "metadata": {HEALTH: True}}
    try:
        await scope.commit(Event(kind="update", at=scope.clock(), ids=(source,), fields=fields, who=scope.agent_id))
    except StoreError as error:
        logger.warning("the exchange %s tells of health and could not be made private: %s", source, error)


async def _state(
    scope: Scope,
    said: SlotStatement,
    *,
    by: str,
    said_at: datetime,
    since: datetime | None = None,
    source: str | None = None,
    sensitivity: Sensitivity | None = None,
    rows: Sequence[Observation] = (),
) -> AddResult:
    """Write one value, in the place of that which it changes; a value said before another one is history at once."""
    scope.check("write")
    scope = replace(scope, session_id=None)  # what is true of a person belongs to no session, and stands beside no talk
    now = scope.clock()
    if since is not None and since > now:
        raise InvalidValue(f"{format_time(since)} is in the future: a value holds from when it is true")
    lines = lines_at(rows or await slot_rows(scope, SENSITIVITIES), now, slot=said.slot)
    if "chat" not in scope.rights:
        return await _proposed(scope, said)
    old = _replaced(said, lines)
    if said.ended and old is None:
        return AddResult("skipped", "", "the profile has no such value")
    if old is not None and _same(old, said):
        return await _again(scope, old, said)
    is_late = old is not None and said_at < old.said_at
    valid_from = since or (old.valid_from if old and said.corrects and not said.ended else said_at)
    draft = Draft(
        title=title_of(said.slot, said.value, ended=said.ended),
        type="identity",
        category=CATEGORY,
        subject=said.slot,
        metadata=_metadata(said, valid_from, now, by, pinned=old is not None and old.pinned),
        source=CATEGORY,
        sensitivity=sensitivity or _sensitivity(said, old),
        created_at=said_at,
        derived_from=(source,) if source else (),
        supersedes=old.id if old is not None and not is_late else None,
        importance=0.6,
    )
    kept = await _kept(scope, draft)
    if is_late and old is not None and kept.outcome == "added":
        await scope.commit(Event(kind="supersede", at=now, ids=(kept.id,), by=old.id, who=scope.agent_id))
    return kept


async def _proposed(scope: Scope, said: SlotStatement) -> AddResult:
    draft = Draft(
        title=f"proposed: {title_of(said.slot, said.value)}",
        category=CATEGORY,
        subject=said.slot,
        metadata={KIND: PROPOSED, SLOT: said.slot, HELD: {"value": said.value}},
        source="tool",
        sensitivity=_sensitivity(said, None),
    )
    [kept] = await keep(scope, [draft])
    return kept


async def forget_with(scope: Scope, ids: Sequence[str]) -> None:
    """Forget the lines of profiles that were taken from these rows alone, which are forgotten.

    Who may forget what a person said may forget what was taken from it.
    """
    if not ids:
        return
    scope = replace(scope, rights=scope.rights | {"chat"})
    wanted = Filter(category=CATEGORY, derived_from=tuple(ids), statuses=KEPT)
    rows = await scope.rows(wanted, view=scope.acting(SENSITIVITIES))
    if lines := [row.id for row in rows if is_line(row) and set(row.derived_from) <= set(ids)]:
        await scope.commit(Event(kind="delete", at=scope.clock(), ids=tuple(lines), who=scope.agent_id))


async def _kept(scope: Scope, draft: Draft) -> AddResult:
    """Keep a draft; where it may not take the other's place, it stands beside it, and the newer one counts."""
    [kept] = await keep(scope, [draft], keep_going=True)
    if kept.outcome == "skipped" and draft.supersedes:
        [kept] = await keep(scope, [replace(draft, supersedes=None)], keep_going=True)
    return kept


async def _again(scope: Scope, old: Line, said: SlotStatement) -> AddResult:
    """Count a value that was said again."""
    try:
        await scope.commit(Event(kind="mention", at=scope.clock(), ids=(old.id,), who=scope.agent_id))
    except StoreError as error:
        return AddResult("skipped", old.id, str(error))
    return AddResult("exact_dup", old.id, f"{said.slot} is {old.value} already")


def _replaced(said: SlotStatement, lines: Sequence[Line]) -> Line | None:
    """The line whose place a value takes."""
    same = [line for line in lines if fold(line.value) == fold(said.value)]
    if same or holds_several(said.slot):
        if not same and said.corrects and not said.ended:
            return next((line for line in lines if not line.ended), None)
        return same[0] if same else None
    return lines[0] if lines and not said.ended else None


def _same(old: Line, said: SlotStatement) -> bool:
    return fold(old.value) == fold(said.value) and old.ended == said.ended


def _metadata(said: SlotStatement, valid_from: datetime, now: datetime, by: str, *, pinned: bool) -> dict[str, Any]:
    held = {"value": said.value, "since": format_time(valid_from), "known": format_time(now), "by": by}
    if said.ended:
        held["ended"] = True  # type: ignore[assignment]
    return {KIND: SLOT, SLOT: said.slot, HELD: held} | ({PINNED: True} if pinned else {})


def _sensitivity(said: SlotStatement, old: Line | None) -> Sensitivity:
    """Return the sensitivity of a value: at least that of the one before it."""
    least: Sensitivity = "private" if said.slot in PRIVATE else "public"
    if old is not None and SENSITIVITIES.index(old.sensitivity) > SENSITIVITIES.index(least):
        return old.sensitivity
    return least


def _since(said: SlotStatement, said_at: datetime) -> datetime | None:
    """Return the past date from which a value holds, if it names one."""
    if not said.since or said.slot in {"name", "nickname", "birthday"}:
        return None
    begins = [span[0] for term in date_terms(said.since, said_at) if (span := span_of(term, said_at)) is not None]
    begins = [begin for begin in begins if begin < said_at]
    return max(begins) if begins else None

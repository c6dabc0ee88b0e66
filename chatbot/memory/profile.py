"""The profile of a person: typed slots such as where they live, each with its dates, its source and its history.

A slot's value is an observation of the category `profile`, made from the exchange in which it was said, which stays the
evidence. Another value takes its place by superseding it, so its history is that of the row, and purging the exchange
purges the value; the older one does not come back by that. A profile belongs to one principal in one namespace: only
what that principal said, set or had extracted from what they said changes it. Slots about health are private.

Two times are kept: since when a value holds (`valid_from`, the time it was said unless it names another), and when it
became known. `as_of` asks for what was true at a time, `known_at` for what was known then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from chatbot.memory.profile_lines import (
    CATEGORY,
    OWN,
    PINNED,
    Line,
    all_lines,
    held_by,
    is_proposal,
    lines_at,
    moment_lines,
    slot_rows,
)
from chatbot.memory.scope import ScopedOperations
from chatbot.memory.writing import AddResult, Draft, MemoryWrites, keep
from chatbot.stores.access import SENSITIVITIES, Sensitivity
from chatbot.stores.errors import ChangedMeanwhile, InvalidValue, UnknownObservation
from chatbot.stores.fields import one_line
from chatbot.stores.observation import OWN_KEY, SLOT, Observation
from chatbot.stores.query import Filter

LONGEST_SLOT = 60


class Profiles(MemoryWrites, ScopedOperations):
    """Asking for and changing one's own profile."""

    __slots__ = ()

    async def profile(
        self,
        slot: str | None = None,
        *,
        as_of: datetime | None = None,
        known_at: datetime | None = None,
        ask: Sequence[Sensitivity] = OWN,
    ) -> list[Line]:
        """Return the caller's lines, pinned first: now, or `as_of` a time, as `known_at` a time.

        Where only `known_at` is given, what was true by then is meant. Raises `InvalidValue` for a time to come.
        """
        from chatbot.memory.past import moment

        scope = self._scope()
        moment(as_of, known_at, scope.clock())
        rows = await slot_rows(scope, ask)
        return lines_at(rows, scope.clock(), slot=slot, as_of=as_of, known_at=known_at)

    async def profile_for(self, asked: str, shown: Iterable[str] = (), *, begins: bool = False) -> list[Line]:
        """The lines that concern a message: pinned ones, those that it asks for, as they are and as they were then.

        `shown` are rows that are recalled, whose lines come along; where a session `begins`, so does the name.
        """
        scope = self._scope()
        return await moment_lines(scope, asked, shown, scope.clock(), begins=begins)

    async def profile_set(
        self, slot: str, value: str, *, since: datetime | None = None, sensitivity: Sensitivity | None = None
    ) -> AddResult:
        """Give a slot a value, in the place of the one that it has; slots that hold several keep the others.

        Any name will do as a slot. A caller without the right to chat, such as a tool, only proposes a value. Raises
        `InvalidValue` for an empty or too long one, or a time to come.
        """
        scope = self._scope()
        from chatbot.memory.profile_learning import state_by_hand

        return await state_by_hand(scope, _slot_name(slot), _value(value), since=since, sensitivity=sensitivity)

    async def profile_proposals(self) -> list[Observation]:
        """The values that tools and imports propose, and that were neither accepted nor forgotten, newest first."""
        scope = self._scope()
        rows = await scope.rows(Filter(category=CATEGORY), view=scope.view(OWN))
        return [row for row in rows if row.principal == scope.principal and is_proposal(row)]

    async def profile_accept(self, proposal_id: str) -> AddResult:
        """Accept a proposed value. Raises `UnknownObservation` if there is no such proposal.

        Raises `MissingRight` without the right to chat: a caller who may only propose accepts nothing.
        """
        self._scope().check("chat")
        proposal = await self._proposal(proposal_id)
        kept = await self.profile_set(
            str(proposal.metadata[SLOT]),
            str(held_by(proposal)["value"]),
            sensitivity=None if proposal.sensitivity == "public" else proposal.sensitivity,  # as private as it was
        )
        await self.forget(proposal_id)
        return kept

    async def profile_reject(self, proposal_id: str) -> None:
        """Take a proposed value away, unaccepted. Raises `UnknownObservation` where there is no such proposal."""
        await self._proposal(proposal_id)
        await self.forget(proposal_id)

    async def profile_pin(self, slot: str, *, pinned: bool = True) -> list[str]:
        """Show the lines of a slot in every prompt, or no longer; their ids. `slot` may be the id of one line.

        Raises `UnknownObservation` where there is none.
        """
        found = await self._lines_of(slot)
        for line in found:
            await self.update(line.id, metadata={PINNED: True if pinned else None})
        return [line.id for line in found]

    async def profile_forget(self, slot: str) -> list[str]:
        """Forget what a slot holds, and what it held; `restore` brings it back. `slot` may be the id of one line.

        Raises `UnknownObservation` where there is none. What was said stays: purge the exchange to erase that.
        """
        scope, slot = self._scope(), slot.casefold()
        rows = [row for row in await slot_rows(scope, SENSITIVITIES) if slot in (row.metadata.get(SLOT), row.id)]
        if not rows:
            raise _unknown(slot)
        await self.forget(*(row.id for row in rows))
        return [row.id for row in rows]

    async def profile_history(self, slot: str) -> list[Line]:
        """Return all values that a slot had, oldest first, each with its dates. Raises `UnknownObservation`."""
        scope, slot = self._scope(), slot.casefold()
        rows = [row for row in await slot_rows(scope, SENSITIVITIES) if row.metadata.get(SLOT) == slot]
        if not rows:
            raise _unknown(slot)
        return sorted(all_lines(rows), key=lambda line: (line.valid_from, line.known_at))

    async def profile_learn(self, facts: Iterable[str], source: str, said_at: datetime) -> list[AddResult]:
        """Fill the slots that facts state, which a model took out of the exchange `source`; see `learn_facts`."""
        from chatbot.memory.profile_learning import learn_facts

        return await learn_facts(self._scope(), facts, source, said_at)

    async def upsert(self, key: str, title: str = "", **draft: Any) -> AddResult:
        """Keep one value under the caller's own key: it replaces the value kept under that key before.

        The key stands in the metadata as `key`; `draft` are fields of `Draft`. The same again is a mention of it.
        """
        scope = self._scope()
        key = one_line(key, "the key")
        if not key:
            raise InvalidValue("the key is empty")
        scope.check("write")
        wanted = Filter(metadata={OWN_KEY: key})
        rows = await scope.rows(wanted, view=scope.view(SENSITIVITIES), order="updated")
        old = next((row for row in rows if row.principal == scope.principal), None)
        if old is None and scope.expects is not None:
            raise ChangedMeanwhile(f"no memory has the key {key!r:.80}: nothing was changed")
        metadata = {**(draft.pop("metadata", None) or {}), OWN_KEY: key}
        given = Draft(title=title, metadata=metadata, **draft)
        if old is not None and all(old.metadata.get(name, value) == value for name, value in metadata.items()):
            given = replace(given, supersedes=old.id)
        elif old is not None:  # rows of different metadata do not supersede each other
            given = replace(given, forgets=old.id)
        [kept] = await keep(scope, [given])
        return kept

    async def _proposal(self, proposal_id: str) -> Observation:
        for row in await self.profile_proposals():
            if row.id == proposal_id:
                return row
        raise UnknownObservation(f"no proposal has the id {proposal_id}")

    async def _lines_of(self, slot: str) -> list[Line]:
        slot = slot.casefold()
        found = [line for line in await self.profile(ask=SENSITIVITIES) if slot in (line.slot, line.id)]
        if not found:
            raise _unknown(slot)
        return found


def _slot_name(slot: str) -> str:
    name = one_line(slot, "the slot").casefold()
    if not name or len(name) > LONGEST_SLOT:
        raise InvalidValue(f"the slot {slot!r:.80} must have 1 to {LONGEST_SLOT} characters")
    return name


def _value(value: str) -> str:
    value = one_line(value, "the value")
    if not value:
        raise InvalidValue("the value is empty: use `forget` to remove a slot")
    return value


def _unknown(slot: str) -> UnknownObservation:
    return UnknownObservation(f"the profile has no slot {slot!r:.80}")

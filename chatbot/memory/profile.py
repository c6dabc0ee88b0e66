"""The profile of a person, see docs/profile.md: values under keys, with their history, and answers to questions.

Answers are not stored, so they are current, pass the gate each time and contain nothing forgotten.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain, zip_longest
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from chatbot.memory import profile_lines
from chatbot.memory.memorability import asks_more
from chatbot.memory.reading import Recall
from chatbot.memory.scope import PUBLIC, Scope, Sensitivities
from chatbot.memory.scoring import MANY, thresholds
from chatbot.memory.writing import AddResult, Draft, MemoryWrites, add_drafts
from chatbot.stores.access import NOT_SECRET, SENSITIVITIES, Sensitivity, fold
from chatbot.stores.errors import ConflictingChange, InvalidValue, UnknownObservation
from chatbot.stores.fields import one_line
from chatbot.stores.observation import KIND, LINE, PROFILE, SUMMARIES, TYPES, Observation, is_own
from chatbot.stores.query import Filter
from chatbot.stores.records import check_text, check_time, format_time, parse_time
from chatbot.stores.row_events import HELD, Event
from chatbot.stores.text.analysis import sentences_of, terms
from chatbot.stores.text.redaction import redact

if TYPE_CHECKING:
    from chatbot.memory.recall import RankedMemory

LONGEST_KEY = 60
PROPOSED = "proposed line"
"""Kind of a value that a tool proposes; it is valid once the person accepts it."""
_SPOKEN = frozenset({"chat", "agent", "user"})
"""Sources of exchanges in which the person speaks; statements from others are only proposed."""
ONLY_PROPOSED = "only proposed: it is valid once the person accepts it"
_BEGINNING = 4
"""Number of first letters that two forms of a word share."""
_MOST_ROWS = 8
_NEED = 0.6
"""`Recall.need` of a standing question."""
_TYPES = tuple(each for each in TYPES if each not in SUMMARIES)


class Profiles(MemoryWrites):
    """Operations on the caller's own profile, and answers to the standing questions."""

    async def profile(
        self,
        key: str | None = None,
        *,
        as_of: datetime | None = None,
        known_at: datetime | None = None,
        sensitivities: Sequence[Sensitivity] = NOT_SECRET,
    ) -> list[profile_lines.ProfileLine]:
        """Return the caller's lines, pinned first: those valid now, or at `as_of`, by what was known at `known_at`.

        `as_of` defaults to `known_at`. Raises `InvalidValue` for a time in the future.
        """
        scope = self.scope
        scope.moment(as_of, known_at)
        key = key and fold(check_text(key, "the key"))
        rows = await profile_lines.line_rows(scope, sensitivities)
        return profile_lines.valid_lines(rows, scope.clock(), key=key, as_of=as_of, known_at=known_at)

    async def profile_for(self, asked: str, shown: Iterable[str] = ()) -> list[profile_lines.ProfileLine]:
        """Return the lines for a message: pinned ones, and those it asks for, with earlier values.

        `shown` are recalled rows: lines of the profile, and sources of lines.
        """
        scope = self.scope
        return profile_lines.prompt_lines(await profile_lines.line_rows(scope), asked, shown, scope.clock())

    async def profile_set(
        self,
        key: str,
        value: str,
        *,
        since: datetime | None = None,
        sensitivity: Sensitivity | None = None,
        also: bool = False,
    ) -> AddResult:
        """Set the value of a key, replacing its values; `also` adds it to them.

        A key is any short text. A caller without the right `chat`, such as a tool, only proposes the value. Raises
        `InvalidValue` for an empty value, an empty or too long key, a secret, or a time in the future.
        """
        scope = self.scope
        stated = ProfileValue(key, value, also)
        if kinds := stated.secrets:
            raise InvalidValue(f"{key!r:.80} would hold a secret ({', '.join(kinds)}): secrets are not kept")
        now = scope.clock()
        return await _write_value(scope, stated, by="person", said_at=now, since=since, sensitivity=sensitivity)

    async def profile_proposals(self) -> list[Observation]:
        """Return the open proposals of tools and imports, newest first."""
        scope = self.scope
        rows = await scope.rows(Filter(category=PROFILE), view=scope.view(NOT_SECRET))
        return [row for row in rows if row.principal == scope.caller.principal and profile_lines.is_proposal(row)]

    async def profile_accept(self, proposal_id: str) -> AddResult:
        """Accept a proposed value. Raises `UnknownObservation`, or `MissingRight` without the right `chat`."""
        self.scope.caller.check("chat")
        proposal = await self._proposal(proposal_id)
        held = profile_lines.held_value(proposal)
        kept = await self.profile_set(
            profile_lines.key_of(proposal),
            str(held["value"]),
            since=parse_time(str(held["since"])) if "since" in held else None,
            sensitivity=None if proposal.sensitivity == "public" else proposal.sensitivity,  # keeps a stricter one
            also=held.get(profile_lines.ALSO) is True,
        )
        await self.forget(proposal_id)
        return kept

    async def profile_reject(self, proposal_id: str) -> None:
        """Reject a proposed value. Raises `UnknownObservation` if there is no such proposal."""
        await self._proposal(proposal_id)
        await self.forget(proposal_id)

    async def profile_pin(self, key: str, *, pinned: bool = True) -> list[str]:
        """Pin lines, by key or id, to every prompt, or unpin them; return their ids. Raises `UnknownObservation`."""
        if not (lines := profile_lines.valid_lines(await self._rows_of(key), self.scope.clock())):
            raise UnknownObservation(f"the key {key!r:.80} has no value now")
        for line in lines:
            await self.update(line.id, metadata={profile_lines.PINNED: pinned or None})
        return [line.id for line in lines]

    async def profile_forget(self, key: str) -> list[str]:
        """Forget all values of a key, current and former; `restore` brings them back. `key` may be the id of a line.

        Raises `UnknownObservation` if there is none. The exchange stays: purge it to erase what was said.
        """
        rows = await self._rows_of(key)
        await self.forget(*(row.id for row in rows))
        return [row.id for row in rows]

    async def profile_history(self, key: str) -> list[profile_lines.ProfileLine]:
        """Return all values that a key had, oldest first, each with its dates. Raises `UnknownObservation`."""
        lines = profile_lines.all_lines(await self._rows_of(key))
        return sorted(lines, key=lambda line: (line.valid_from, line.known_at))

    async def _rows_of(self, key: str) -> list[Observation]:
        """Return all values of a key, or the line of that id. Raises `UnknownObservation` if there is none."""
        key = fold(check_text(key, "the key"))
        lines = profile_lines.all_lines(await profile_lines.line_rows(self.scope, SENSITIVITIES))
        rows = [line.row for line in lines if key in (line.folded_key, line.id)]
        if not rows:
            raise UnknownObservation(f"the profile has no key {key!r:.80}")
        return rows

    async def profile_learn(self, stated: Iterable[tuple[str, str]], source: str, said_at: datetime) -> list[AddResult]:
        """Set keys to values that a model extracted from the exchange `source` of that time.

        Unsaid values are only proposed. A key that is named twice gets both. Secrets and invalid keys are left out.
        """
        scope = self.scope
        scope.caller.check("read")
        rows = await scope.store.get(scope.write_view(SENSITIVITIES), [source])
        said = " ".join(
            row.user_text for row in rows if row.principal == scope.caller.principal and row.source in _SPOKEN
        )
        said_at = min(said_at, scope.clock())  # it may have been set back since
        done: list[AddResult] = []
        named: set[str] = set()
        for key, value in stated:
            with suppress(InvalidValue):
                each = ProfileValue(key, value, fold(key) in named)
                if each.secrets:
                    continue
                named.add(fold(each.key))
                if is_in_words(each.value, said):
                    done.append(await _write_value(scope, each, by="model", said_at=said_at, source=source))
                else:
                    done.append(await _propose(scope, each))
        return done

    async def _proposal(self, proposal_id: str) -> Observation:
        for row in await self.profile_proposals():
            if row.id == proposal_id:
                return row
        raise UnknownObservation.of([proposal_id], "proposal")

    async def standing(
        self,
        *,
        pinned: bool = False,
        as_of: datetime | None = None,
        known_at: datetime | None = None,
        sensitivities: Sensitivities = PUBLIC,
    ) -> "list[StandingAnswer]":
        """Return the answers to all standing questions, or the rows of the `pinned` ones: now, or as of a time.

        Uses only rows that the caller said, wrote or imported. Does not count as use.
        """
        from chatbot.memory.recall import recollect

        fresh_at = self.scope.fresh_at()  # others are looked at once for all questions, which are public
        scope = replace(self.scope, caller=replace(self.caller, sensitivity="public"), fresh_at=lambda: fresh_at)
        need = None if scope.meaning is None else _NEED
        asked = [each for each in scope.environment.options.questions() if each.pinned or not pinned]
        found = []
        for each in asked:
            wanted = Recall(
                each.question,
                limit=2 * _MOST_ROWS,
                need=need,
                statements=True,
                as_of=as_of,
                known_at=known_at,
                sensitivities=sensitivities,
            )
            found.append((await recollect(scope, wanted, Filter(types=_TYPES), self._is_said)).hits)
        sure = zip(asked, self._sure(found, all_asked=not pinned), strict=True)
        answers = [StandingAnswer(each.question, each.pinned, rows) for each, rows in sure]
        unpinned = [row for each in answers if not each.pinned for row in each.rows]
        stated = await self._statement_ids(unpinned) if unpinned else ()
        answers = [replace(each, rows=_best(each, stated)) for each in answers]
        if pinned or (meaning := scope.meaning) is None:
            return answers
        return [replace(each, closest=await meaning.closest_sentences({each.question: each.rows})) for each in answers]

    async def _statement_ids(self, rows: Sequence[Observation]) -> set[str]:
        """Return the ids of the rows that are judged to state something, or of all without a judge.

        A single sentence that asks more than it states is a question, also without a question mark.
        """
        meaning = self.scope.meaning
        judged = await meaning.judge([row.headline for row in rows], sentences=True) if meaning is not None else ()
        return {
            row.id
            for row, found in zip_longest(rows, judged)
            if found is None
            or (found.states_something and not (asks_more(found.scores) and len(sentences_of(row.headline)) == 1))
        }

    def _sure(self, found: "Sequence[Sequence[RankedMemory]]", *, all_asked: bool) -> list[list[Observation]]:
        """Return the rows of each question. If none has enough evidence for a large memory, only the best fits stay.

        In a small memory less is enough to recall a row; but of these questions many have no answer. The best fit of a
        row is the question for which it has the most evidence; without `all_asked`, no row has one.
        """
        meaning, most = self.scope.meaning, dict[str, float]()
        for hit in chain.from_iterable(found) if all_asked else ():
            most[hit.id] = max(hit.row.evidence, most.get(hit.id, 0.0))
        least = thresholds(1.0, _NEED, MANY)[0] if meaning is not None and meaning.is_calibrated else 0.0
        answers = []
        for hits in found:
            is_clear = any(hit.row.evidence >= least for hit in hits)
            fits = [hit.row.evidence for hit in hits if hit.row.evidence == most.get(hit.id) and not hit.later]
            best = max(fits, default=inf)  # what answers better stays beside it, wherever it fits best
            fitting = [hit for hit in hits if is_clear or hit.row.evidence in fits or hit.row.evidence > best]
            answers.append([hit.observation for hit in fitting if hit.observation])
        return answers

    def _is_said(self, row: Observation) -> bool:
        return row.principal == self.caller.principal and (is_own(row) or row.source.startswith("import"))


class StandingAnswer(Struct, frozen=True):
    """A question with the rows that answer it, newest first."""

    question: str
    pinned: bool
    rows: Sequence[Observation]
    closest: Mapping[str, str] = MappingProxyType({})
    """Sentences that answer the question, by ids of rows with long words."""

    def text_of(self, row: Observation) -> str:
        """Return what is shown of a row."""
        return self.closest.get(row.id, row.headline)

    def as_json(self) -> dict[str, Any]:
        """Return the answer as JSON values."""
        rows = [
            {"id": row.id, "said_at": format_time(row.last_said_at), "text": self.text_of(row), "source": row.source}
            for row in self.rows
        ]
        return {"question": self.question, "pinned": self.pinned, "rows": rows}


class Profile(Struct, frozen=True):
    """The lines of a person's profile, the answers to the standing questions, and the proposed values."""

    lines: Sequence[profile_lines.ProfileLine]
    standing: Sequence[StandingAnswer] = ()
    proposals: Sequence[Observation] = ()
    """Values that tools proposed, newest first."""

    def as_json(self) -> dict[str, Any]:
        """Return the profile as JSON values."""
        answers = [each.as_json() for each in self.standing]
        proposals = [row.brief() for row in self.proposals]
        return {"profile": [line.as_json() for line in self.lines], "standing": answers, "proposals": proposals}


class ProfileValue(Struct, frozen=True):
    """A value of a key; `also` adds it to those that the key has. Raises `InvalidValue`."""

    key: str
    value: str
    also: bool = False

    def __post_init__(self) -> None:
        key, value = one_line(self.key, "the key"), one_line(self.value, "the value")
        if not fold(key) or len(key) > LONGEST_KEY:
            raise InvalidValue(f"the key {self.key!r:.80} must have 1 to {LONGEST_KEY} characters")
        if not value:
            raise InvalidValue("the value is empty: use `forget` to remove a key")
        force_setattr(self, "key", key)
        force_setattr(self, "value", value)

    @property
    def title(self) -> str:
        """The statement as a prompt shows it."""
        return f"{self.key}: {self.value}"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The kinds of secrets in it."""
        return redact(self.title)[1]

    @property
    def held(self) -> dict[str, Any]:
        """The value as the metadata of its row holds it."""
        held = {"value": self.value, profile_lines.TYPED: self.key}
        return held | ({profile_lines.ALSO: True} if self.also else {})


def is_in_words(value: str, said: str) -> bool:
    """Return whether each word of a value, or one that begins like it, is among the words said. Pure."""
    wanted, words = terms(value), terms(said)
    return bool(wanted) and all(any(_begin_alike(each, word) for word in words) for each in wanted)


async def _write_value(
    scope: Scope,
    stated: ProfileValue,
    *,
    by: Literal["person", "model"],
    said_at: datetime,
    since: datetime | None = None,
    source: str | None = None,
    sensitivity: Sensitivity | None = None,
) -> AddResult:
    """Write a value in place of those that it replaces; one said before the current value becomes history."""
    scope.caller.check("write")
    scope = replace(scope, session_id=None)  # a profile belongs to no session
    now = scope.clock()
    if since is not None and check_time(since) > now:
        raise InvalidValue(f"{format_time(since)} is in the future: give the time since which the value is true")
    if "chat" not in scope.caller.rights:
        return await _propose(scope, stated, since, sensitivity)
    lines = profile_lines.valid_lines(await profile_lines.line_rows(scope, SENSITIVITIES), now, key=fold(stated.key))
    if same := next((line for line in lines if fold(line.value) == fold(stated.value)), None):
        return await _repeat(scope, same, stated if by == "person" else None, since, sensitivity)
    replaced = [] if stated.also else lines
    later = next((line for line in replaced if min(line.said_at, now) > said_at), None)
    held = {"since": format_time(since or said_at), "known": format_time(now), "by": by}
    pinned = {profile_lines.PINNED: True} if any(line.pinned for line in lines) else {}
    strictest: Sensitivity = max((line.sensitivity for line in lines), key=SENSITIVITIES.index, default="public")
    draft = Draft(
        title=stated.title,
        type="identity",
        category=PROFILE,
        subject=stated.key,
        metadata={KIND: LINE, LINE: fold(stated.key), HELD: stated.held | held} | pinned,
        source=PROFILE,
        sensitivity=sensitivity or strictest,
        created_at=said_at,
        derived_from=(source,) if source else (),
        supersedes=replaced[0].id if replaced and later is None else None,
        importance=0.6,
    )
    kept = await _keep(scope, draft)
    if kept.outcome == "exact_dup":  # an imported proposal has the text of its line
        rows = await scope.store.get(scope.write_view(SENSITIVITIES), [kept.id])
        if any(map(profile_lines.is_proposal, rows)):
            await scope.change("delete", kept.id)
            kept = await _keep(scope, draft)
    if kept.outcome == "added":
        left = [(line.id, kept.id) for line in replaced[1:]] if later is None else [(kept.id, later.id)]
        for old, new in left:
            with suppress(ConflictingChange):  # a value that may not be replaced is kept, too
                await scope.change("supersede", old, by=new)
    return kept


async def _propose(
    scope: Scope, stated: ProfileValue, since: datetime | None = None, sensitivity: Sensitivity | None = None
) -> AddResult:
    held = stated.held | ({"since": format_time(since)} if since else {})
    draft = Draft(
        title=f"proposed: {stated.title}",
        category=PROFILE,
        subject=stated.key,
        metadata={KIND: PROPOSED, LINE: fold(stated.key), HELD: held},
        source="tool",
        sensitivity=sensitivity or "public",
    )
    [kept] = await add_drafts(scope, [draft])
    return replace(kept, warning=ONLY_PROPOSED)


async def _keep(scope: Scope, draft: Draft) -> AddResult:
    """Keep a draft; if it may not replace the other, both are kept, and the newer one counts."""
    if draft.supersedes is not None:
        [kept] = await add_drafts(scope, [draft], keep_going=True)
        if kept.outcome != "skipped":
            return kept
    [kept] = await add_drafts(scope, [dataclasses.replace(draft, supersedes=None)])
    return kept


async def _repeat(
    scope: Scope,
    line: profile_lines.ProfileLine,
    stated: ProfileValue | None,
    since: datetime | None,
    sensitivity: Sensitivity | None,
) -> AddResult:
    """Count a value that was stated again; if the person `stated` it, correct spelling, start and sensitivity."""
    at, who = scope.clock(), scope.agent_id
    events = [Event(kind="mention", at=at, ids=(line.id,), who=who)]
    if stated is not None:
        began = {} if since is None else {"since": format_time(since)}
        typed = {"value": stated.value, profile_lines.TYPED: stated.key}
        held = {**profile_lines.held_value(line.row), **typed, **began}
        fields: dict[str, Any] = {"title": stated.title, "metadata": {HELD: held}}
        fields |= {} if sensitivity is None else {"sensitivity": sensitivity}
        events.append(Event(kind="update", at=at, ids=(line.id,), fields=fields, who=who))
    if (await scope.commit(*events))[-1].kind == "updated" and stated is not None:
        return AddResult("updated", line.id)
    return AddResult("exact_dup", line.id, f"{line.key} is {line.value} already")


def _begin_alike(one: str, other: str) -> bool:
    length = max(1, min(len(one), len(other), _BEGINNING))
    is_number = one.isdecimal() and other.isdecimal()
    return one == other if is_number else one[:length] == other[:length]


def _best(answer: StandingAnswer, stated: Collection[str]) -> list[Observation]:
    """Return the best rows of an answer, newest first; if it is not pinned, only those that are `stated`."""
    best = [row for row in answer.rows if answer.pinned or row.id in stated][:_MOST_ROWS]
    return sorted(best, key=lambda row: (row.last_said_at, row.id), reverse=True)

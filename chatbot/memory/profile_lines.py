"""Lines of a profile: the values of each key at a time, as known at another, and the lines for a prompt.

A line is an observation of the category `profile`. It is valid from the time that it names, or else from when it was
said, until its successor becomes valid. A time in the future, which a clock that was ahead gave, counts as now.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from chatbot.memory.scope import Scope
from chatbot.stores.access import NOT_SECRET, SENSITIVITIES, VISIBILITIES, Sensitivity, fold
from chatbot.stores.errors import InvalidValue
from chatbot.stores.observation import LINE, PROFILE, Observation, Status, is_line
from chatbot.stores.query import Filter
from chatbot.stores.records import check_time, format_time, parse_time
from chatbot.stores.row_events import HELD
from chatbot.stores.text.analysis import terms
from chatbot.stores.text.dates import date_terms, local

PINNED = "pinned"
ALSO = "also"
"""Entry of `held_value` that marks a value as one of several of its key."""
TYPED = "key"
"""Entry of `held_value` with the key as it was typed."""
_FINEST_FIRST = ("day", "week", "month", "in", "year")
_LINE_STATUSES: tuple[Status, ...] = ("active", "superseded")


class ProfileLine(Struct, frozen=True, kw_only=True):
    """One value of a key, which is as it was typed; `valid_to` is None while it is valid."""

    id: str
    key: str
    value: str
    title: str
    valid_from: datetime
    valid_to: datetime | None
    said_at: datetime
    known_at: datetime
    pinned: bool
    by: str
    sources: tuple[str, ...]
    sensitivity: Sensitivity
    row: Observation

    @property
    def folded_key(self) -> str:
        """The form in which keys are compared."""
        return fold(self.key)

    def as_json(self) -> dict[str, Any]:
        """Return the line as JSON values."""
        shown = {name: value for name, value in asdict(self).items() if name not in {"known_at", "row"}}
        times = {name: format_time(at) for name, at in shown.items() if isinstance(at, datetime)}
        return shown | times | {"sources": list(self.sources)}


async def line_rows(scope: Scope, sensitivities: Sequence[Sensitivity] = NOT_SECRET) -> list[Observation]:
    """Return the rows of the caller's own profile that the caller may see."""
    rows = await scope.rows(Filter(category=PROFILE, statuses=_LINE_STATUSES), view=scope.view(sensitivities))
    return [row for row in rows if row.principal == scope.caller.principal and is_line(row)]


def is_proposable(row: Observation) -> bool:
    """Return whether a row has the form of a line; an imported one is only a proposal."""
    return row.category == PROFILE and isinstance(row.metadata.get(LINE), str)


def is_proposal(row: Observation) -> bool:
    """Return whether a row proposes a value, without being a line."""
    return is_proposable(row) and not is_line(row) and isinstance(held_value(row).get("value"), str)


def valid_lines(
    rows: Sequence[Observation],
    now: datetime,
    *,
    key: str | None = None,
    as_of: datetime | None = None,
    known_at: datetime | None = None,
) -> list[ProfileLine]:
    """Return the lines valid at a time, as known at another: pinned first, then by key, then the newest. Pure.

    A key has one value and those added to it.
    """
    known = check_time(known_at) if known_at else now
    at = check_time(as_of) if as_of else known
    by_key: defaultdict[str, list[ProfileLine]] = defaultdict(list)
    for line in all_lines([row for row in rows if min(_held_time(row, "known"), now) <= known], known_at and known):
        is_over = line.valid_to is not None and min(line.valid_to, now) <= at
        if min(line.valid_from, now) <= at and not is_over and key in (None, line.folded_key):
            by_key[line.folded_key].append(line)
    found: list[ProfileLine] = []
    for lines in by_key.values():
        newest = sorted(lines, key=_precedence, reverse=True)
        only = next((line for line in newest if not _is_additional(line)), None)
        shown = [line for line in reversed(newest) if line is only or _is_additional(line)]
        found += [*{fold(line.value): line for line in shown}.values()][::-1]  # of each value the last statement
    return sorted(found, key=lambda line: (not line.pinned, line.folded_key))


def _is_additional(line: ProfileLine) -> bool:
    return held_value(line.row).get(ALSO) is True


def _precedence(line: ProfileLine) -> tuple[int, datetime, datetime, str]:
    """Return the sort key of values: the most private is the greatest, then the newest."""
    return -VISIBILITIES.index(line.row.visibility), line.valid_from, line.known_at, line.id


def prompt_lines(rows: Sequence[Observation], asked: str, shown: Iterable[str], now: datetime) -> list[ProfileLine]:
    """Return the lines for a prompt: current values, those at the time asked about, and former ones. Pure.

    Pinned lines are in every prompt. Others are if they or their source are `shown`, or if they or an earlier value of
    their key share a word with the text `asked`.
    """
    words, given = frozenset(terms(asked)), frozenset(shown)
    every = all_lines(rows)
    keys = {line.folded_key for line in every if not words.isdisjoint(terms(line.title))}
    current = valid_lines(rows, now)
    near = [line for line in current if line.id in given or not given.isdisjoint(line.sources)]
    about = [line for line in current if line.folded_key in keys]
    keys |= {line.folded_key for line in near}
    pinned = [line for line in current if line.pinned]
    then = past_time(asked, now)
    past = [line for line in valid_lines(rows, now, as_of=then) if line.folded_key in keys] if then else []
    before = _before(every, [line for line in current if line.folded_key in keys])
    return list({line.id: line for line in (*pinned, *past, *about, *near, *before)}.values())


def _before(every: Sequence[ProfileLine], found: Sequence[ProfileLine]) -> list[ProfileLine]:
    """Return the last former value of each of these keys."""
    lines: list[ProfileLine] = []
    former = sorted((each for each in every if each.valid_to), key=lambda each: each.valid_from)
    for line in found:
        others = (each for each in former if each.folded_key == line.folded_key)
        lines += [each for each in others if fold(each.value) != fold(line.value)][-1:]
    return lines


def past_time(text: str, now: datetime) -> datetime | None:
    """Return the past time that a question names: the middle of its span; None if it names none."""
    span = _span_named(text, local(now))
    return min(span[0] + (span[1] - span[0]) / 2, now) if span else None


def named_time(text: str, now: datetime) -> datetime | None:
    """Return the start of the past span that words such as "May 2025" or "last year" name; None for other words."""
    span = _span_named(text, now) or _span_named(f"in {text}", now)
    return span[0] if span else None


def _span_named(text: str, now: datetime) -> tuple[datetime, datetime] | None:
    """Return the span from the first to the last past date in a text, of the finest unit that has one."""
    dates = date_terms(text, now, exact=True)
    for kind in _FINEST_FIRST:
        spans = [_span_of(term, now) for term in dates if term.partition(":")[0] == kind]
        past = [span for span in spans if span[0] < now - timedelta(days=1)]
        if past:
            return min(begin for begin, _ in past), max(end for _, end in past)
    return None


def all_lines(rows: Sequence[Observation], known: datetime | None = None) -> list[ProfileLine]:
    """Return the lines in these rows, as known at a time; None: as known now."""
    by_id = {row.id: row for row in rows}
    return [_line(row, _valid_to(row, by_id, known)) for row in rows]


def _line(row: Observation, valid_to: datetime | None) -> ProfileLine:
    held, key = held_value(row), key_of(row)
    return ProfileLine(
        id=row.id,
        key=key,
        value=row.title.removeprefix(f"{key}: "),  # the title may have been edited
        title=row.title,
        valid_from=_held_time(row, "since"),
        valid_to=valid_to,
        said_at=row.last_said_at,
        known_at=_held_time(row, "known"),
        pinned=row.metadata.get(PINNED) is True,
        by=str(held.get("by", "")),
        sources=row.derived_from,
        sensitivity=row.sensitivity,
        row=row,
    )


def key_of(row: Observation) -> str:
    """Return the key of a line or proposal as it was typed; `LINE` has its folded form."""
    typed = str(held_value(row).get(TYPED, ""))
    return typed if fold(typed) == fold(key := str(row.metadata[LINE])) else key


def held_value(row: Observation) -> Mapping[str, Any]:
    """Return the value that a row's metadata holds, with its times and who stated it."""
    held = row.metadata.get(HELD)
    return held if isinstance(held, Mapping) else {}


def _held_time(row: Observation, name: str) -> datetime:
    """Return a time of the value that a row holds, `since` or `known`; by default that of the row."""
    written = held_value(row).get(name)
    try:
        return parse_time(written) if isinstance(written, str) else row.created_at
    except InvalidValue:
        return row.created_at


def _valid_to(row: Observation, by_id: Mapping[str, Observation], known: datetime | None) -> datetime | None:
    """Return when a value ended, as known then: when its successor began, or, without that, when it was replaced."""
    if row.status != "superseded" or row.superseded_at is None or (known and row.superseded_at > known):
        return None
    successor = by_id.get(row.superseded_by or "")
    end = _held_time(successor, "since") if successor else row.superseded_at
    return max(end, _held_time(row, "since"))  # a successor may be valid from an earlier time


def _span_of(term: str, now: datetime) -> tuple[datetime, datetime]:
    """Return the span of a term of `chatbot.stores.text.dates` of a kind in `_FINEST_FIRST`, in the zone of `now`."""
    kind, _, value = term.partition(":")
    if kind == "day":
        begin = datetime.fromisoformat(value).replace(tzinfo=now.tzinfo)
        return begin, begin + timedelta(days=1)
    if kind == "week":
        year, week = map(int, value.split("-"))
        begin = datetime.fromisocalendar(year, week, 1).replace(tzinfo=now.tzinfo)
        return begin, begin + timedelta(days=7)
    if kind == "month":
        return _month(now, *map(int, value.split("-")))
    if kind == "in":
        this_year = _month(now, now.year, int(value))
        return this_year if this_year[0] < now else _month(now, now.year - 1, int(value))
    return _month(now, int(value), 1)[0], _month(now, int(value), 12)[1]


def _month(now: datetime, year: int, month: int) -> tuple[datetime, datetime]:
    begin = datetime(year, month, 1, tzinfo=now.tzinfo)
    return begin, datetime(year + month // 12, month % 12 + 1, 1, tzinfo=now.tzinfo)


async def forget_derived(scope: Scope, ids: Sequence[str]) -> None:
    """Forget what tells of these forgotten rows: profile lines that derive from no other, and summaries of sessions.

    The right to forget a row covers them.
    """
    if not ids:
        return
    scope = replace(scope, caller=scope.caller.elevated("chat"))
    wanted = Filter(derived_from=tuple(ids), statuses=_LINE_STATUSES)
    rows = await scope.rows(wanted, view=scope.write_view(SENSITIVITIES))
    lines = [row for row in rows if is_line(row) and set(row.derived_from) <= set(ids)]
    summaries = [row for row in rows if row.type == "session_summary"]  # the next one is made without these rows
    if told := [row.id for row in (*lines, *summaries)]:
        await scope.change("delete", *told)

"""Printing of observations for people: as tables, and in full."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from textwrap import shorten

from chatbot.cli.output import SHORTEST_ID, age, say, say_marked, say_table, short_ids
from chatbot.memory.reading import Hit
from chatbot.stores.observation import Observation
from chatbot.stores.query import Version, status_now
from chatbot.stores.records import format_time

_LONGEST_VALUE = 300


def say_observations(rows: Sequence[Observation]) -> None:
    """Print a table of observations; with the time of creation only if it differs from that of the last change."""
    created = [age(row.created_at) for row in rows]
    names = ("id", "type", "status", "sensitivity", "namespace", "created", "updated", "title")
    _say_rows(rows, *names, created=[] if created == [age(row.updated_at) for row in rows] else created)


def say_hits(hits: Sequence[Hit]) -> None:
    """Print a table of hits with their scores."""
    score = [f"{hit.score:.2f}" for hit in hits]
    rows = [hit.observation for hit in hits]
    _say_rows(rows, "id", "score", "type", "sensitivity", "namespace", "created", "title", score=score)


def say_timeline(rows: Sequence[Observation], anchor: str) -> None:
    """Print a table in the order of time, in which the observation `anchor` is marked."""
    marks = ["*" if row.id == anchor else "" for row in rows]
    created = [minute(row.created_at) for row in rows]
    _say_rows(rows, "", "id", "created", "type", "status", "title", **{"": marks, "created": created})


def say_numbered(rows: Sequence[Observation]) -> None:
    """Print a table of observations to choose from by number."""
    numbers, ids = [str(number) for number in range(1, len(rows) + 1)], [row.id[:SHORTEST_ID] for row in rows]
    _say_rows(rows, "#", "id", "type", "sensitivity", "updated", "title", **{"#": numbers, "id": ids})


def _say_rows(rows: Sequence[Observation], *names: str, **given: list[str]) -> None:
    """Print a table of these columns, without those in which all rows are active, public, or of no namespace."""
    cells = {
        "id": short_ids([row.id for row in rows]),
        "type": [row.type for row in rows],
        "status": _unless_all("active", [status_now(row, datetime.now(UTC)) for row in rows]),
        "sensitivity": _unless_all("public", [row.sensitivity for row in rows]),
        "namespace": _unless_all("", [row.namespace for row in rows]),
        "updated": [age(row.updated_at) for row in rows],
        "created": [age(row.created_at) for row in rows],
        "title": [row.headline for row in rows],
    } | given
    shown = [name for name in names if cells[name]]
    say_table(shown, list(zip(*(cells[name] for name in shown), strict=True)))


def _unless_all(usual: str, values: list[str]) -> list[str]:
    """Return the cells of a column; none if all are the usual value."""
    return values if any(each != usual for each in values) else []


def say_history(versions: Sequence[Version]) -> None:
    """Print the versions of a memory with their events, times and authors."""
    for version in versions:
        row = version.observation
        say_marked(f"{row.id}  {row.headline} ({status_now(row, datetime.now(UTC))})")
        for event, changed in version.readable_steps():
            what = [event.kind, f"by {event.by}" if event.by else ""]
            source = ": ".join(filter(None, (event.who, event.why)))
            who = f" ({source})" if source else ""
            say_marked(f"{format_time(event.at)}  {' '.join(filter(None, what))}{who}", indent="  ")
            for name, (old, new) in changed.items():
                before = f"{_value(old)} → " if old else ""
                say_marked(f"{name.replace('_', ' ')}: {before}{_value(new)}", indent="    ")
        if row.consolidated_at:
            say_marked(f"{format_time(row.consolidated_at)}  {_strength(row)}", indent="  ")


def _value(value: object) -> str:
    """Return the value of a field on one line; a long one is cut: only `--json` shows it whole."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) if value else ""
    return shorten(text, _LONGEST_VALUE, placeholder="…") or "(empty)"


def say_in_full(row: Observation) -> None:
    """Print all texts and properties of an observation."""
    parts = [f"# {row.headline}", row.subtitle, row.narrative, "\n".join(f"- {fact}" for fact in row.facts)]
    parts += [f"{who}: {text}" for who, text in (("user", row.user_text), ("assistant", row.assistant_text)) if text]
    parts.append("\n".join(f"{name + ':':<13} {value}" for name, value in _properties(row) if value))
    say("\n\n".join(filter(None, parts)))


def _strength(row: Observation) -> str:
    return f"strength {row.current_strength:g} after {row.consolidated_touches} mentions, uses and confirmations"


def minute(moment: datetime) -> str:
    """Return a moment in UTC, to the minute."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"


def _properties(row: Observation) -> Iterable[tuple[str, str]]:
    yield "id", row.id
    yield "type", row.type
    yield "status", status_now(row, datetime.now(UTC)) + (f" by {row.superseded_by}" if row.superseded_by else "")
    yield "clearance", "" if row.min_clearance == "public" else row.min_clearance
    for name in ("visibility", "sensitivity", "namespace", "subject", "category", "project", "source"):
        yield name, getattr(row, name)
    for name in ("tags", "concepts", "people", "files_read", "files_modified", "derived_from"):
        yield name.replace("_", " "), ", ".join(getattr(row, name))
    yield "metadata", ", ".join(f"{key}={value}" for key, value in row.metadata.items())
    yield "importance", f"{row.importance:g}" + (f"; {_strength(row)}" if row.consolidated_at else "")
    yield "session", row.session_id or ""
    yield "created", format_time(row.created_at)
    yield "updated", format_time(row.updated_at) if row.updated_at != row.created_at else ""
    yield "expires", format_time(row.expires_at) if row.expires_at else ""
    yield "counts", f"{row.mention_count} mentioned, {row.use_count} used, {row.confirmed_count} confirmed"

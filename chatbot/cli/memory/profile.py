"""`chatbot memory profile`: what holds of you, with its dates, its source and its history."""

from __future__ import annotations

from collections.abc import Sequence

from chatbot.cli.memory.verb_run import VerbRun, redacting
from chatbot.cli.output import printable, say_table, short_ids
from chatbot.memory.profile_lines import OWN, Line
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.errors import UnknownObservation


async def profile(desk: VerbRun) -> None:
    """Show the profile, or change one slot of it."""
    deed = desk.args.deed or "show"
    await {
        "show": _show,
        "set": _set,
        "pin": _pin,
        "unpin": _pin,
        "forget": _forget,
        "history": _history,
        "accept": _accept,
        "reject": _reject,
    }[deed](desk)


async def _show(desk: VerbRun) -> None:
    args = desk.args
    found = await desk.memories.profile(as_of=args.as_of, known_at=args.known_at, ask=(*OWN, *desk.ask))
    proposals = await desk.memories.profile_proposals() if args.as_of is None and args.known_at is None else []
    desk.show_page(found, _say, Line.as_json, nothing="No profile yet")
    if not args.json:
        for row in proposals:
            desk.tell({}, printable(f"{row.title} (memory profile accept {row.id}, or reject)"))


def _say(found: Sequence[Line]) -> None:
    say_table(
        ("id", "slot", "value", "since", "until", "said", ""),
        [
            [
                short,
                line.slot,
                f"not {line.value}" if line.ended else line.value,
                f"{line.valid_from:%Y-%m-%d}",
                f"{line.valid_to:%Y-%m-%d}" if line.valid_to else "–",
                f"{line.said_at:%Y-%m-%d}",
                ", ".join(word for word, holds in _notes(line) if holds),
            ]
            for short, line in zip(short_ids([line.id for line in found]), found, strict=True)
        ],
    )


def _notes(line: Line) -> Sequence[tuple[str, bool]]:
    return (("pinned", line.pinned), (line.sensitivity, line.sensitivity != "public"), (f"by {line.by}", bool(line.by)))


async def _set(desk: VerbRun) -> None:
    slot, value = redacting(desk.args.slot, desk.args.value)
    kept = await desk.memories.profile_set(slot, value, since=desk.args.since)
    desk.tell(
        {"id": kept.id, "outcome": kept.outcome},
        printable(f"{'unchanged' if kept.outcome == 'exact_dup' else 'set'}: {slot}: {value} ({kept.id})"),
    )


async def _pin(desk: VerbRun) -> None:
    pinned = desk.args.deed == "pin"
    ids = await desk.memories.profile_pin(await _slot(desk), pinned=pinned)
    desk.tell({"ids": ids, "pinned": pinned}, f"{'pinned' if pinned else 'unpinned'}: {printable(desk.args.slot)}")


async def _forget(desk: VerbRun) -> None:
    ids = await desk.memories.profile_forget(await _slot(desk))
    desk.tell(
        {"forgotten": ids}, printable(f"forgot {desk.args.slot} ({len(ids)}); undo: memory restore {' '.join(ids)}")
    )


async def _history(desk: VerbRun) -> None:
    found = await desk.memories.profile_history(desk.args.slot)
    desk.show_page(found, _say, Line.as_json, nothing="No profile yet")


async def _accept(desk: VerbRun) -> None:
    kept = await desk.memories.profile_accept(await desk.id(desk.args.id))
    desk.tell({"id": kept.id, "outcome": kept.outcome}, f"accepted ({kept.id})")


async def _reject(desk: VerbRun) -> None:
    proposal = await desk.id(desk.args.id)
    await desk.memories.profile_reject(proposal)
    desk.tell({"rejected": proposal}, f"rejected ({proposal}); undo: memory restore {proposal}")


async def _slot(desk: VerbRun) -> str:
    """The slot that is named, or the id of a line by its beginning."""
    name: str = desk.args.slot
    if any(line.slot == name for line in await desk.memories.profile(ask=SENSITIVITIES)):
        return name
    try:
        return await desk.id(name)
    except UnknownObservation:
        return name

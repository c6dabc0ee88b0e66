"""`chatbot memory profile`: what you stated of yourself, with its dates and history, and the standing questions."""

from __future__ import annotations

from collections.abc import Sequence

from chatbot.cli.memory.command import VerbRun, redacting
from chatbot.cli.output import Columns, printable, say, say_columns, say_json, shortener
from chatbot.memory.profile_lines import Line
from chatbot.operations import show_profile
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.errors import UnknownObservation
from chatbot.stores.fields import how_many
from chatbot.stores.observation import Observation


async def profile(run: VerbRun) -> None:
    """Show the profile, or change one key of it."""
    deed = run.args.deed or "show"
    await {
        "show": _show,
        "set": _set,
        "pin": _pin,
        "unpin": _pin,
        "forget": _forget,
        "history": _history,
        "accept": _accept,
        "reject": _reject,
    }[deed](run)


async def _show(run: VerbRun) -> None:
    args = run.args
    is_now = args.as_of is None and args.known_at is None
    known = await show_profile(run.context, as_of=args.as_of, known_at=args.known_at, ask=SENSITIVITIES)
    if args.json:
        say_json(known.as_json())
        return
    _say(known.lines)
    for row in await run.memories.profile_proposals() if is_now else ():
        say(printable(f"{row.title} (memory profile accept {row.id}, or reject)"))
    answered = [answer for answer in known.standing if answer.rows]
    for answer in answered:
        say(printable(f"\n{answer.sentence}".rstrip()))
        said: Columns[Observation] = {
            "said": lambda row: f"{row.created_at:%Y-%m-%d}",
            "id": shortener(answer.rows),
            "source": lambda row: row.source,
            f"{answer.question}{' (pinned)' if answer.pinned else ''}": lambda row: row.headline,
        }
        say_columns(answer.rows, said)
    if nothing := len(known.standing) - len(answered):
        say(f"\n{how_many(nothing, 'standing question')} without an answer yet")


def _say(found: Sequence[Line]) -> None:
    columns: Columns[Line] = {
        "id": shortener(found),
        "key": lambda line: line.key,
        "value": lambda line: line.value,
        "since": lambda line: f"{line.valid_from:%Y-%m-%d}",
        "until": lambda line: f"{line.valid_to:%Y-%m-%d}" if line.valid_to else "–",
        "said": lambda line: f"{line.said_at:%Y-%m-%d}",
        "": lambda line: ", ".join(word for word, holds in _notes(line) if holds),
    }
    if found:
        say_columns(found, columns)
    else:
        say("No profile yet: chatbot memory profile set KEY VALUE")


def _notes(line: Line) -> Sequence[tuple[str, bool]]:
    return (("pinned", line.pinned), (line.sensitivity, line.sensitivity != "public"), (f"by {line.by}", bool(line.by)))


async def _set(run: VerbRun) -> None:
    args = run.args
    key, value = redacting(args.key, args.value)
    kept = await run.memories.profile_set(key, value, since=args.since, sensitivity=args.sensitivity, also=args.also)
    run.tell(
        {"id": kept.id, "outcome": kept.outcome},
        printable(f"{'unchanged' if kept.outcome == 'exact_dup' else 'set'}: {key}: {value} ({kept.id})"),
    )


async def _pin(run: VerbRun) -> None:
    pinned = run.args.deed == "pin"
    ids = await run.memories.profile_pin(await _key(run), pinned=pinned)
    run.tell({"ids": ids, "pinned": pinned}, f"{'pinned' if pinned else 'unpinned'}: {printable(run.args.key)}")


async def _forget(run: VerbRun) -> None:
    ids = await run.memories.profile_forget(await _key(run))
    run.tell({"forgotten": ids}, printable(f"forgot {run.args.key} ({len(ids)}); undo: memory restore {' '.join(ids)}"))


async def _history(run: VerbRun) -> None:
    found = await run.memories.profile_history(run.args.key)
    if run.args.json:
        say_json([line.as_json() for line in found])
    else:
        _say(found)


async def _accept(run: VerbRun) -> None:
    kept = await run.memories.profile_accept(await _whole(run, run.args.id))
    run.tell({"id": kept.id, "outcome": kept.outcome}, f"accepted ({kept.id})")


async def _reject(run: VerbRun) -> None:
    proposal = await _whole(run, run.args.id)
    await run.memories.profile_reject(proposal)
    run.tell({"rejected": proposal}, f"rejected ({proposal}); undo: memory restore {proposal}")


async def _key(run: VerbRun) -> str:
    """The key that is named, or the id of a line by its beginning."""
    name: str = run.args.key
    if any(line.key == name.casefold() for line in await run.memories.profile(ask=SENSITIVITIES)):
        return name
    return await _whole(run, name)


async def _whole(run: VerbRun, text: str) -> str:
    """Return the id that begins with the text; the text itself where none does, which is refused in its own words."""
    try:
        return await run.id(text)
    except UnknownObservation:
        return text

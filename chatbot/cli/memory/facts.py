"""`chatbot memory facts`: what is stated of whom."""

from __future__ import annotations

from collections.abc import Sequence

from chatbot.cli.memory.desk import Desk, redacting
from chatbot.cli.output import check_can_ask, is_sure, printable, say_table, short_ids
from chatbot.cli.paging import reach
from stores.access import SENSITIVITIES
from stores.errors import InvalidValue, UnknownObservation
from stores.observation import Triple, is_observation_id
from stores.query import MOST_AT_ONCE


async def facts(desk: Desk) -> None:
    """List facts, state one, take one back, or erase one."""
    await {None: _list, "add": _add, "remove": _remove, "purge": _purge}[desk.args.deed](desk)


async def _list(desk: Desk) -> None:
    args = desk.args
    found = await desk.memories.query_facts(
        subject=args.subject,
        predicate=args.predicate,
        object=args.object,
        limit=reach(args),
        ask=desk.ask,
    )
    desk.show_page(found, _say, lambda fact: fact.as_json(), nothing="no such fact is stated")


def _say(found: Sequence[Triple]) -> None:
    say_table(
        ("id", "sure", "fact"),
        [
            [short, f"{fact.confidence:.0%}", f"{fact.subject} · {fact.predicate} · {fact.object}"]
            for short, fact in zip(short_ids([fact.id for fact in found]), found, strict=True)
        ],
    )


async def _add(desk: Desk) -> None:
    args = desk.args
    source = await desk.id(args.source) if args.source else None
    subject, predicate, object_ = redacting(args.subject, args.predicate, args.object)
    fact = await desk.memories.store_fact(subject, predicate, object_, confidence=args.confidence, source=source)
    desk.tell(fact.as_json(), printable(f"stated: {fact.subject} · {fact.predicate} · {fact.object} ({fact.id})"))


async def _remove(desk: Desk) -> None:
    found = await _resolve(desk, desk.args.id.lower())
    await desk.memories.retract_fact(found)
    desk.tell({"removed": found}, f"took back {found}")


async def _purge(desk: Desk) -> None:
    args = desk.args
    if not (args.yes or args.dry_run):
        check_can_ask("purging")
    found = await _resolve(desk, args.id.lower())
    shown = [] if args.yes and not args.dry_run else [fact for fact in await _all(desk) if fact.id == found]
    if args.dry_run and not shown:
        raise UnknownObservation(f"there is no fact {found}")
    if shown and not args.json:
        _say(shown)
    if args.dry_run:
        desk.tell({"purged": [found], "dry_run": True}, f"would be purged: {found}")
        return
    if not (args.yes or is_sure("erase for good?")):
        raise InvalidValue("nothing was purged")
    await desk.memories.purge_fact(found)
    desk.tell({"purged": [found], "dry_run": False}, f"purged {found}")


async def _all(desk: Desk) -> list[Triple]:
    return await desk.memories.query_facts(limit=MOST_AT_ONCE, ask=SENSITIVITIES)


async def _resolve(desk: Desk, prefix: str) -> str:
    """The one fact, of the newest thousand, whose id begins with `prefix`."""
    if is_observation_id(prefix):
        return prefix
    found = sorted(fact.id for fact in await _all(desk) if prefix and fact.id.startswith(prefix))
    if len(found) > 1:
        raise UnknownObservation(f"several facts begin with {prefix!r}: {', '.join(found[:5])}")
    if not found:
        raise UnknownObservation(f"there is no fact {prefix!r}")
    return found[0]

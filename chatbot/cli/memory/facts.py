"""`chatbot memory facts`: what is stated of whom."""

from __future__ import annotations

from chatbot.cli.memory.desk import Desk, redacting
from chatbot.cli.output import printable, say, say_json, say_table, short_ids
from stores.access import SENSITIVITIES
from stores.errors import UnknownObservation
from stores.observation import is_observation_id
from stores.query import MOST_AT_ONCE


async def facts(desk: Desk) -> None:
    """List facts, state one, or take one back."""
    await {None: _list, "add": _add, "remove": _remove}[desk.args.deed](desk)


async def _list(desk: Desk) -> None:
    args = desk.args
    found = await desk.memories.query_facts(
        subject=args.subject,
        predicate=args.predicate,
        object=args.object,
        limit=args.limit or MOST_AT_ONCE,
        ask=desk.ask,
    )
    if args.json:
        say_json([fact.as_json() for fact in found])
    elif found:
        say_table(
            ("id", "sure", "fact"),
            [
                [short, f"{fact.confidence:.0%}", f"{fact.subject} · {fact.predicate} · {fact.object}"]
                for short, fact in zip(short_ids([fact.id for fact in found]), found, strict=True)
            ],
        )
    else:
        say("no such fact is stated")


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


async def _resolve(desk: Desk, prefix: str) -> str:
    """The one fact, of the newest thousand, whose id begins with `prefix`."""
    if is_observation_id(prefix):
        return prefix
    facts = await desk.memories.query_facts(limit=MOST_AT_ONCE, ask=SENSITIVITIES)
    found = sorted(fact.id for fact in facts if prefix and fact.id.startswith(prefix))
    if len(found) > 1:
        raise UnknownObservation(f"several facts begin with {prefix!r}: {', '.join(found[:5])}")
    if not found:
        raise UnknownObservation(f"there is no fact {prefix!r}")
    return found[0]

"""`chatbot memory people`: who is mentioned, and under which names."""

from __future__ import annotations

from collections.abc import Sequence

from chatbot.cli.memory.desk import Desk, redacting
from chatbot.cli.output import age, printable, say_table
from chatbot.memory.people import Person
from stores.errors import InvalidValue
from stores.records import format_time


async def people(desk: Desk) -> None:
    """List people, or state that two names are one person."""
    first, *names = desk.args.words or [""]
    if first == "alias" and names:
        await _alias(desk, names)
        return
    found = await desk.memories.people(" ".join([first, *names]), ask=desk.ask)
    desk.show_page(found, _say, _as_json, nothing="nobody of that name is mentioned")


def _say(found: Sequence[Person]) -> None:
    say_table(
        ("mentions", "last", "facts", "name"),
        [
            [str(person.mention_count), age(person.last_mentioned), str(len(person.facts)), _names(person)]
            for person in found
        ],
    )


async def _alias(desk: Desk, names: list[str]) -> None:
    if len(names) != 2:
        raise InvalidValue(f"alias takes two names, not {len(names)}: put those of several words in quotes")
    name, alias = redacting(*names)
    fact = await desk.memories.add_alias(name, alias)
    desk.tell({"id": fact, "name": name, "alias": alias}, printable(f"{name} is also known as {alias} (fact {fact})"))


def _names(person: Person) -> str:
    return person.name + (f" ({', '.join(person.aliases)})" if person.aliases else "")


def _as_json(person: Person) -> dict[str, object]:
    return {
        "name": person.name,
        "aliases": list(person.aliases),
        "mention_count": person.mention_count,
        "last_mentioned": format_time(person.last_mentioned),
        "facts": [fact.as_json() for fact in person.facts],
    }

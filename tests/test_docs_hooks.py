"""Examples of docs/hooks.md are run as they stand, and its tables are compared with the code."""

import re
from pathlib import Path

import pytest

import chatbot.chat.events
from chatbot.hooks.hook import HOOKS, planned_hooks
from chatbot.models import ScriptedModel
from chatbot.runtime import Runtime
from tests.command import project
from tests.talk import begun

pytestmark = pytest.mark.usefixtures("config_is_asked_for")

TEXT = (Path(__file__).parents[1] / "docs" / "hooks.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    [found] = re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return str(found)


def rows(head: str) -> list[list[str]]:
    table = TEXT[TEXT.index(head) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


async def test_the_hook_of_the_documentation_does_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path.cwd())
    Path("my_hooks.py").write_text(block("python"), encoding="utf-8")
    project('[model]\nname = "scripted"\n' + block("toml"))
    async with Runtime(model=ScriptedModel(["Short.", "This one is a little longer."])) as runtime:
        session, chat = await begun(runtime)
        await chat.turn("Which herring is pickled in Gotland?")
        await chat.turn("And which one is smoked there?")
        await runtime.leave(session)
        [row] = [row for row in (await session.memory.list_observations()).rows if row.source == "lengths"]
    assert row.title == "A reply of 28 characters"


def test_the_table_of_hooks_is_what_runs() -> None:
    told = {row[0].strip("`"): (row[1], row[2]) for row in rows("| hook | topic |")}
    assert set(told) == set(HOOKS.own)
    for plan in planned_hooks({}):
        topics, priority = told[plan.name]
        if plan.hook.topics:
            assert priority == str(plan.priority)
        for topic in re.findall(r"`(.*?)`", topics):
            assert topic in plan.hook.topics


def test_the_table_of_events_has_every_topic() -> None:
    told = {row[0].strip("`") for row in rows("| topic | when |")}
    values = [value for name, value in vars(chatbot.chat.events).items() if name.isupper()]
    known = {value for value in values if isinstance(value, str) and ":" in value}
    assert known <= told
    assert told - known == {"memory.<session id>.update", "memory.<session id>.retrieve"}

"""Memories that a provider must not be sent: no prompt holds it, no tool gives it, and the receipt says so."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from chatbot.chat.conversation_memory import PromptMemory
from chatbot.chat.events import OwnHook, PromptSubmit, Publisher
from chatbot.chat.memory_block import MemoryBlock, build_block
from chatbot.chat.memory_tools import agent_context, agent_tools
from chatbot.chat.receipts import memory_line
from chatbot.errors import ToolError
from chatbot.memory import MemorySystem, SessionHandle
from chatbot.messages import Delta, Finished, ToolCall, ToolCallDelta, ToolSpec, Usage
from chatbot.models import ScriptedModel
from chatbot.models.model import Disclosure, Model, estimate_text
from chatbot.runtime import Options, Runtime
from chatbot.stores.access import GUEST_RIGHTS, SENSITIVITIES, Sensitivity, View
from chatbot.stores.errors import InvalidValue, MissingRight, StoreFailed
from chatbot.tools import Tool, Toolbox
from tests.command import run
from tests.talk import begun, chat_of, sent

STORES = ("basic_session", "observations")
NOTHING = Disclosure("box", memory=False)
PUBLIC = Disclosure("box", sensitivity="public")
PRIVATE = Disclosure("box", sensitivity="private")
ANYTHING = Disclosure("box")
HERE = Disclosure("local")
SECRETS: dict[Sensitivity, str] = {"public": "alpaca Castor", "private": "alpaca Pollux", "secret": "alpaca Leda"}
"""Memories by sensitivity; nothing can be written that is `unknown`."""


class Generous(Publisher):
    """A plug-in that recalls rows of one sensitivity, whatever was asked for."""

    def __init__(self, sensitivity: Sensitivity) -> None:
        self.ids: list[str] = []
        self._sensitivity = sensitivity

    async def publish(self, event: Any, own: OwnHook | None = None) -> Sequence[object]:
        if not isinstance(event, PromptSubmit):
            return []
        view = View("full", event.at, frozenset(SENSITIVITIES))
        rows = await event.session.memory.every(types=["discovery"], sensitivities=[self._sensitivity])
        self.ids = [row.id for row in rows]
        block = build_block([(row, 1.0) for row in rows], nonce="12345678", view=view, count=estimate_text)
        return [PromptMemory(block, tuple(rows), {"injected": list(block.injected)})]


@pytest.fixture
async def session(memory: MemorySystem) -> SessionHandle:
    session = await memory.create_session(STORES, "chat")
    for sensitivity, text in SECRETS.items():
        await session.memory.remember(f"Ellen keeps the {text}.", sensitivity=sensitivity)
    return session


def model_of(disclosure: Disclosure, *replies: str | Sequence[Delta]) -> ScriptedModel:
    model = ScriptedModel(replies or ["Fine."])
    model.disclosure = disclosure
    return model


@pytest.mark.parametrize(
    ("disclosure", "sensitivity", "is_sent"),
    [
        (ANYTHING, "public", True), (ANYTHING, "private", False), (ANYTHING, "secret", False),
        (PRIVATE, "private", True), (PRIVATE, "secret", False), (HERE, "private", True), (HERE, "secret", False),
        (PUBLIC, "public", True), (PUBLIC, "private", False), (PUBLIC, "secret", False), (NOTHING, "public", False),
        (NOTHING, "private", False), (NOTHING, "secret", False), (Model.disclosure, "private", False),
    ],
)  # fmt: skip
async def test_a_row_is_sent_as_far_as_the_provider_may_be_sent_it(
    session: SessionHandle, disclosure: Disclosure, sensitivity: Sensitivity, *, is_sent: bool
) -> None:
    model, plug_in = model_of(disclosure), Generous(sensitivity)
    receipt = await chat_of(model, session, publisher=plug_in).turn("Which alpaca?")
    assert (SECRETS[sensitivity] in sent(model)) is is_sent
    assert receipt.memory["injected"] == (plug_in.ids if is_sent else [])
    assert len(plug_in.ids) == 1
    withheld = receipt.memory.get("withheld", {"rows": []})
    assert withheld["rows"] == ([] if is_sent else plug_in.ids)
    assert (f"1 note about this is withheld from {disclosure.provider}" in sent(model)) is not is_sent
    if "rule" in withheld:
        assert (withheld["provider"], withheld["rule"]) == (disclosure.provider, disclosure.rule)
    [saved] = await session.receipts()
    assert saved["memory"] == receipt.memory


@pytest.mark.parametrize("without_ids", [True, False])
async def test_a_block_of_unnamed_rows_is_not_known_to_be_public(session: SessionHandle, *, without_ids: bool) -> None:
    class Nameless(Generous):
        async def publish(self, event: Any, own: OwnHook | None = None) -> Sequence[object]:
            answers = await super().publish(event, own)
            blocks = [answer.block for answer in answers if isinstance(answer, PromptMemory)]
            return [PromptMemory(MemoryBlock(block.text) if without_ids else block) for block in blocks]

    model = model_of(PUBLIC)
    receipt = await chat_of(model, session, publisher=Nameless("public")).turn("Which alpaca?")
    assert "Castor" not in sent(model)
    notice = f"a hook's memory block names no memories, so {model.name} is not sent it"
    assert receipt.notices == ([notice] if without_ids else [])


@pytest.mark.parametrize(
    ("disclosure", "names"),
    [
        (NOTHING, ()), (PUBLIC, ("Castor",)), (ANYTHING, ("Castor",)), (PRIVATE, ("Castor", "Pollux")),
        (HERE, ("Castor", "Pollux")),
    ],
)  # fmt: skip
async def test_what_is_recalled_by_itself_is_withheld_alike_and_counted_for_model_and_person(
    session: SessionHandle, disclosure: Disclosure, names: Sequence[str]
) -> None:
    model = model_of(disclosure)
    receipt = await chat_of(model, session).turn("Which alpaca does Ellen keep?")
    assert [name for name in ("Castor", "Pollux", "Leda") if name in sent(model)] == list(names)
    withheld = receipt.memory["withheld"]["rows"]
    assert len(withheld) == 3 - len(names)
    assert f"{len(withheld)} note" in sent(model)
    assert f"withheld from {disclosure.provider} by the user's choice: {disclosure.rule}" in sent(model)
    assert memory_line(receipt.memory).endswith(f"{len(withheld)} withheld from {disclosure.provider}")
    rows = await session.memory.get(withheld, sensitivities=SENSITIVITIES, count_use=False)
    assert {row.use_count for row in rows} == {0}, "what was not sent was not used"


async def test_what_is_withheld_changes_nothing_of_the_prompt(session: SessionHandle, memory: MemorySystem) -> None:
    model = model_of(ANYTHING, "One.", "Two.")
    chat = chat_of(model, session)
    await chat.turn("Which alpaca does Ellen keep?")
    held = sent(model)
    for row in await session.memory.every(sensitivities=["private", "secret"]):
        await session.memory.purge(row.id)
    await chat_of(model, await memory.create_session(STORES, "chat")).turn("Which alpaca does Ellen keep?")
    notes = [line for line in sent(model).splitlines() if line.startswith("- ")]
    assert notes == [line for line in held.splitlines() if line.startswith("- ") and "withheld" not in line] != []


async def test_nothing_is_said_of_marked_rows_that_a_message_is_not_about(session: SessionHandle) -> None:
    model = model_of(ANYTHING)
    receipt = await chat_of(model, session).turn("When does the tram to Graz leave?")
    assert "withheld" not in receipt.memory
    assert "withheld" not in sent(model)


async def test_another_model_is_not_sent_what_the_one_before_was_given(session: SessionHandle) -> None:
    generous = model_of(ANYTHING)
    chat = chat_of(generous, session)
    await chat.turn("Which alpaca does Ellen keep?")
    assert "Castor" in sent(generous)
    strict = model_of(NOTHING)
    chat.use(strict, Toolbox())
    await chat.turn("And where?")
    assert "Which alpaca does Ellen keep?" in sent(strict)
    assert "Castor" not in sent(strict)


async def test_what_a_prompt_showed_is_not_sent_again_once_it_is_marked_private(session: SessionHandle) -> None:
    model = model_of(ANYTHING, "Fine.", "Fine.")
    chat = chat_of(model, session)
    await chat.turn("Which alpaca does Ellen keep?")
    [row] = await session.memory.every(types=["discovery"])
    await session.memory.update(row.id, sensitivity="private")
    await chat.turn("And where?")
    assert "Castor" not in sent(model)


@pytest.mark.parametrize(("disclosure", "name"), [(NOTHING, "memory_search"), (PUBLIC, "session_read")])
async def test_no_other_model_gets_old_tool_answers(session: SessionHandle, disclosure: Disclosure, name: str) -> None:
    class Answer(Tool):
        """A tool of that name."""

        def __init__(self) -> None:
            self.spec = ToolSpec(name, "")

        async def run(self, arguments: dict[str, Any]) -> str:
            return "It is Castor."

    call: list[Delta] = [ToolCallDelta(0, "c1", name, "{}"), Finished("tool_calls", Usage(1, 1), "m")]
    generous = model_of(ANYTHING, call, "As you like.")
    chat = chat_of(generous, session, None, Answer(), publisher=Generous("unknown"))
    await chat.turn("Which alpaca?")
    assert "Castor" in sent(generous)
    for model, is_sent in ((model_of(disclosure), False), (model_of(ANYTHING), True)):
        chat.use(model, Toolbox())
        await chat.turn("And where?")
        assert ("Castor" in sent(model)) is is_sent
        assert [message.tool_call_id for message in model.prompts[-1] if message.role == "tool"] == ["c1"]


FIRST = {"memory_search", "memory_get", "memory_write", "memory_forget", "memory_more"}
"""Tools that prompts describe one by one, and the one for the rest."""


@pytest.mark.parametrize(
    ("setting", "offered"), [("", FIRST), ('sensitivity = "public"', FIRST), ("memory = false", set[str]())]
)
async def test_a_provider_is_not_offered_tools_whose_answers_are_withheld(setting: str, offered: set[str]) -> None:
    Path("asked.toml").write_text(f'[model]\nname = "scripted"\n[providers.scripted]\n{setting}\n', encoding="utf-8")
    async with Runtime(Options(config=Path("asked.toml"))) as runtime:
        session, _ = await begun(runtime)
        toolbox = runtime.tools(session)
        await toolbox.complete()
        assert {spec.name for spec in toolbox.specs} == offered
        asked = ToolCall("c", "memory_more", json.dumps({"tool": "session_search", "arguments": {"query": "x"}}))
        results = await toolbox.run([asked, ToolCall("d", "session_search", '{"query": "x"}')])
        assert [result.is_error for result in results] == [bool(setting)] * 2
        assert not setting or "session_search" not in repr(toolbox.specs)


def test_why_says_what_was_withheld_from_whom() -> None:
    Path("asked.toml").write_text('[model]\nname = "scripted"\n[providers.scripted]\nmemory = false\n', "utf-8")
    at = ("--config", "asked.toml")
    assert run("memory", "add", *at, "Ellen keeps the alpaca Castor.").returncode == 0
    assert run("ask", *at, "Which alpaca does Ellen keep?").returncode == 0
    told = run("why", *at).stdout
    assert "in the prompt: 1 withheld from scripted (memory = false)" in told
    assert re.search(r"withheld .*  Ellen keeps the alpaca Castor", told)
    dry = run("prompt", "--dry-run", *at, "Which alpaca does Ellen keep?").stdout
    assert "in the prompt: 1 withheld from scripted" in dry
    assert "1 note about this is withheld from scripted by the user's choice: memory = false" in dry
    assert "Castor" not in dry


async def test_a_session_that_was_half_marked_is_marked_wholly_by_the_next_try(
    memory: MemorySystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, change = await memory.create_session(STORES, "chat"), memory._catalog.change

    async def change_and_die(*given: Any) -> None:
        await session.memory.remember("The vet of the alpacas is Dr Hale.")  # as another process may
        await change(*given)
        raise StoreFailed("killed")

    monkeypatch.setattr(memory._catalog, "change", change_and_die)
    with pytest.raises(StoreFailed):
        await session.mark("private")
    monkeypatch.undo()
    await session.mark("private")
    assert [row.sensitivity for row in await memory.memory().every(sensitivities=SENSITIVITIES)] == ["private"]


async def test_what_is_said_in_a_session_that_is_marked_private_is_kept_from_providers(memory: MemorySystem) -> None:
    session, tools = await memory.create_session(STORES, "chat"), agent_tools(agent_context(memory, "chat"))
    chat = chat_of(model_of(ANYTHING), session)
    await chat.turn("My alpaca Rufus has a sore hoof.")
    await session.memory.remember("The vet of the alpacas is Dr Hale.", sensitivity="secret")
    forgotten = (await session.memory.remember("The alpacas drink from the trough.")).id
    await session.memory.forget(forgotten)
    limp = await session.memory.store_fact("Rufus", "has", "a limp")
    guest = await memory.cleared_for(rights=GUEST_RIGHTS).load_session(session.id, "chat")
    with pytest.raises(InvalidValue, match="must be public, private or secret"):
        await session.mark("unknown")
    await guest.mark("private")
    assert await session.memory.query_facts() == []
    with pytest.raises(MissingRight, match="declassify"):
        await guest.mark("public")
    assert (await memory.memory().query_facts(sensitivities=SENSITIVITIES))[0].sensitivity == "private"
    await session.memory.purge_fact(limp.id)
    assert (await session.memory.row(forgotten, sensitivities=SENSITIVITIES)).sensitivity == "private"
    await session.move("farm")
    await chat.turn("My alpaca Rufus eats only hay since Monday.")
    rows = await session.memory.every(sensitivities=SENSITIVITIES)
    assert {(row.sensitivity, row.project) for row in rows} == {("private", "farm"), ("secret", "farm")}
    await session.move("")
    await session.memory.store_fact("Rufus", "eats", "hay")
    rows = await session.memory.every(sensitivities=SENSITIVITIES)
    assert sorted(row.sensitivity for row in rows) == ["private", "private", "secret"]
    assert [fact.sensitivity for fact in await session.memory.query_facts(sensitivities=SENSITIVITIES)] == ["private"]
    other = await memory.create_session(STORES, "chat")
    for disclosure, is_sent in ((ANYTHING, False), (HERE, True)):
        model = model_of(disclosure)
        receipt = await chat_of(model, other).turn("What about my alpaca Rufus, hay or hoof?")
        assert ("sore hoof" in sent(model)) is is_sent
        assert len(receipt.memory.get("withheld", {}).get("rows", ())) == (0 if is_sent else 2)
        await other.transcript_clear()
    named = {tool.spec.name: tool for tool in tools}
    assert session.id not in await named["session_search"].run({"query": "alpaca Rufus hoof"})
    with pytest.raises(ToolError, match="no session"):
        await named["session_read"].run({"session_id": session.id})
    assert (await memory.fork_session(session.id)).record.sensitivity == "private"
    await session.mark("public")
    rows = await session.memory.every(session_id=session.id, sensitivities=SENSITIVITIES)
    assert sorted(row.sensitivity for row in rows) == ["public", "public", "secret"]
    assert session.id in await named["session_search"].run({"query": "alpaca Rufus hoof"})


def test_a_session_and_an_identity_are_marked_private_from_the_command_line() -> None:
    at = ("-m", "scripted")
    assert run("ask", *at, "Ellen keeps the alpaca Castor in the yard.").returncode == 0
    [session] = json.loads(run("sessions", "list", "--json").stdout)
    assert run("sessions", "mark", session["id"][:18], "private").stdout == f"{session['id']} is private\n"
    assert "private" in run("memory", "list").stdout
    assert run("init", "--here", "--name", "grace").returncode == 0
    file = next(Path().glob("**/identities/grace/identity.toml"))
    file.write_text('sensitivity = "private"\n', "utf-8")
    assert run("memory", "add", "-i", "grace", "Ellen keeps the alpaca Pollux.").returncode == 0
    [row] = json.loads(run("memory", "list", "-i", "grace", "--json").stdout)
    assert row["sensitivity"] == "private"
    assert run("ask", "-i", "grace", *at, "Ellen keeps the alpaca Rufus.").returncode == 0
    [said] = json.loads(run("sessions", "list", "-i", "grace", "--json").stdout)
    assert said["sensitivity"] == "private", "else tools of models could read it"
    file.write_text('sensitivity = "privat"\n', "utf-8")
    assert "did you mean 'private'" in run("memory", "list", "-i", "grace").stderr

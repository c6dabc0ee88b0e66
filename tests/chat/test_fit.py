"""Texts too long for the window are cut to its best passages, and says so; short things stay as they are."""

import json

import pytest

from chatbot.chat.attached import framed
from chatbot.chat.events import Notice, TurnEvent
from chatbot.chat.memory_tools import memory_tools
from chatbot.chat.prompt import build_prompt, fit
from chatbot.errors import ContextTooLong
from chatbot.memory import MemorySystem
from chatbot.messages import Image, Message, ToolCall
from chatbot.models import ScriptedModel
from tests.talk import chat_of

WINDOW = 2_000
FILLER = "".join(f"Line {n} tells of the weather in the {n}th week of the year.\n" for n in range(900))
NEEDLE = "The bicycle is in the cellar of house nine.\n"
HAYSTACK = FILLER[: len(FILLER) // 2] + NEEDLE + FILLER[len(FILLER) // 2 :]


async def _fitted(*exchange: Message, room: int = 1_000) -> tuple[list[Message], list[str]]:
    model = ScriptedModel(window=WINDOW)
    cost = await model.count_tokens(exchange)
    [fitted], [cost], cuts = await fit([list(exchange)], [cost], room, model)
    assert await model.count_tokens(fitted) == cost
    return fitted, [cut.what for cut in cuts]


async def test_what_fits_is_not_touched() -> None:
    asked = Message("user", "hello")
    assert await _fitted(asked) == ([asked], [])


async def test_a_document_is_cut_to_the_passage_that_answers() -> None:
    file = Message("user", framed("notes.md", HAYSTACK), source="notes.md")
    question = Message("user", "Where is the bicycle?")
    [cut, asked], what = await _fitted(file, question)
    assert (asked, what) == (question, ["notes.md"])
    assert NEEDLE.strip() in cut.content
    lines = cut.content.splitlines()
    assert lines[0] == file.content.splitlines()[0]
    assert lines[-1] == file.content.splitlines()[-1]
    assert "cut to fit" in lines[2]


async def test_answers_of_tools_share_the_room_and_short_ones_stay() -> None:
    calls = tuple(ToolCall(f"c{n}", f"tool_{n}", "{}") for n in range(3))
    answers = [json.dumps({"rows": [HAYSTACK]}), '{"ok": true}', json.dumps({"rows": [HAYSTACK]})]
    exchange = [
        Message("user", "Where is the bicycle?"),
        Message("assistant", "", tool_calls=calls),
        *(Message("tool", text, tool_call_id=f"c{n}") for n, text in enumerate(answers)),
    ]
    fitted, what = await _fitted(*exchange)
    assert what == ["tool_0", "tool_2"]
    assert fitted[:2] == exchange[:2]
    assert fitted[3].content == answers[1]
    assert all("bicycle is in the cellar" in fitted[n].content for n in (2, 4))
    assert await ScriptedModel().count_tokens(fitted) <= 1_000


async def test_of_a_pasted_text_the_question_before_or_behind_it_stays() -> None:
    for text in (f"Where is the bicycle?\n\n{HAYSTACK}", f"{HAYSTACK}\n\nWhere is the bicycle?"):
        [cut], what = await _fitted(Message("user", text, parts=(text, Image("data:image/png;base64,AA"))), room=2_200)
        assert what == ["message"]
        assert "Where is the bicycle?" in cut.content
        assert NEEDLE.strip() in cut.content
        assert cut.parts == (cut.content, Image("data:image/png;base64,AA"))


async def test_what_no_cut_can_make_fit_is_an_error() -> None:
    with pytest.raises(ContextTooLong):
        await build_prompt(
            ScriptedModel(window=300),
            "persona " * 60,
            [Message("user", "word " * 900, parts=("word", *(Image("data:,") for _ in range(3))))],
            tools=(),
            reply_tokens=100,
        )


async def test_earlier_exchanges_are_cut_before_they_are_left_out_and_stay_the_same() -> None:
    model = ScriptedModel(window=WINDOW)
    file = Message("user", framed("notes.md", HAYSTACK), source="notes.md")
    before = [file, Message("user", "Where is the bicycle?"), Message("assistant", "In the cellar.")]
    prompts = [
        await build_prompt(model, "p", [*before, *more], tools=(), reply_tokens=200)
        for more in (
            [Message("user", "Thanks.")],
            [Message("user", "Thanks."), Message("assistant", "You are welcome.")],
        )
    ]
    for prompt in prompts:
        assert NEEDLE.strip() in prompt.messages[1].content
        assert prompt.left_out == 0
        assert [cut.what for cut in prompt.cut] == ["notes.md"]
        assert prompt.tokens + prompt.reply_tokens <= WINDOW
    assert prompts[0].messages[1:4] == prompts[1].messages[1:4]


async def test_two_long_memories_that_the_model_reads_do_not_end_the_turn(memory: MemorySystem) -> None:
    session = await memory.create_session(["basic_session", "observations"], "chat")
    rows = [await session.memory.remember(f"notes {n}", narrative=FILLER[:6_000] + str(n)) for n in range(5)]
    ids = json.dumps({"ids": [row.id for row in rows]})
    calls = [ToolCall(f"c{n}", "memory_get", ids) for n in range(2)]
    model = ScriptedModel([calls, "In the cellar."], window=8_192)
    chat = chat_of(model, session, memory.home, *memory_tools(session), most=500)
    events = list[TurnEvent]()
    receipt = await chat.turn("Where is the bicycle?", events.append)
    assert (receipt.finish, receipt.reply) == ("stop", "In the cellar.")
    assert [each["what"] for each in receipt.as_json()["window"]["cut"]] == ["memory_get"] * 2
    assert next(each.text for each in events if isinstance(each, Notice)).startswith("memory_get is too long")

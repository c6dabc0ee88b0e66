"""The prompt: messages from entries, their order, what gives way when there is no room, and how texts are cut."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatbot.chat.attached import document
from chatbot.chat.dialogue import Window, messages_of, tool_call_line, tool_result_line
from chatbot.chat.events import Notice, TurnEvent
from chatbot.chat.memory_tools import ToolContext, session_tools
from chatbot.chat.prompt import PromptBundle, build_prompt, fit
from chatbot.errors import ContextTooLong
from chatbot.memory import MemorySystem
from chatbot.messages import Image, Message, ToolCall, ToolSpec
from chatbot.models import ScriptedModel
from chatbot.stores.records import TranscriptEntry
from tests.talk import chat_of

EXTRAS = {"summary": "the summary", "block": "the block", "earlier_block": "the earlier block"}


def dialogue(exchanges: int) -> list[Message]:
    said = [Message(role, f"{role} {at} {'word ' * 20}") for at in range(exchanges) for role in ("user", "assistant")]
    return [*said, Message("user", "the question")]


async def built(exchanges: int, window: int, **extras: str) -> PromptBundle:
    model = ScriptedModel(["x"], window=window)
    return await build_prompt(model, "persona", dialogue(exchanges), tools=(), reply_tokens=50, **extras)


async def test_what_changes_least_stands_first() -> None:
    bundle = await built(2, 8192, **EXTRAS)
    said = [message.content.split(" word")[0] for message in bundle.messages]
    assert said == [
        "persona", "the summary", "user 0", "assistant 0", "the earlier block\n\nuser 1", "assistant 1",
        "the block\n\nthe question",
    ]  # fmt: skip


async def test_notes_stand_at_the_head_of_a_question_with_a_picture_too() -> None:
    asked = Message("user", "What is this?", parts=(Image("data:image/png;base64,"), "What is this?"))
    bundle = await build_prompt(ScriptedModel(["x"]), "persona", [asked], tools=(), reply_tokens=50, block="the block")
    [_, shown] = bundle.messages
    assert shown.content == "the block\n\nWhat is this?"
    assert shown.parts == ("the block\n\n", *asked.parts)


async def test_summary_and_memory_give_way_to_the_question() -> None:
    bundle = await built(2, 40, **EXTRAS)
    assert bundle.messages[-1].content == "the question"
    assert bundle.dropped == ("summary", "earlier memory", "memory")


async def test_a_message_that_must_be_cut_anyway_leaves_the_memory_block_its_room() -> None:
    asked = [Message("user", f"{HAYSTACK}\n\nWhere is the bicycle?")]
    bundle = await build_prompt(ScriptedModel(window=WINDOW), "persona", asked, tools=(), reply_tokens=50, **EXTRAS)
    assert (bundle.dropped, [cut.what for cut in bundle.cut]) == (("summary",), ["message"])
    assert bundle.messages[-1].content.startswith("the block\n\n")
    assert bundle.messages[-1].content.endswith("Where is the bicycle?")
    assert bundle.tokens + bundle.reply_tokens <= WINDOW
    large = EXTRAS | {"block": NEEDLE * 100}
    bundle = await build_prompt(ScriptedModel(window=WINDOW), "persona", asked, tools=(), reply_tokens=50, **large)
    assert bundle.dropped == ("summary", "memory")


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


async def test_only_long_answers_of_tools_are_cut() -> None:
    calls = tuple(ToolCall(f"c{n}", f"tool_{n}", "{}") for n in range(2))
    long, short = [Message("tool", text, tool_call_id=f"c{n}") for n, text in enumerate((HAYSTACK, "word " * 200))]
    asking = Message("user", "Where is the bicycle?"), Message("assistant", "", tool_calls=calls)
    fitted, what = await _fitted(*asking, long, short)
    assert (what, fitted[3]) == (["tool_0"], short)


async def test_of_a_pasted_text_the_question_before_or_behind_it_stays() -> None:
    for text in (f"Where is the bicycle?\n\n{HAYSTACK}", f"{HAYSTACK}\n\nWhere is the bicycle?"):
        [cut], what = await _fitted(Message("user", text, parts=(text, Image("data:image/png;base64,AA"))), room=2_200)
        assert what == ["message"]
        assert "Where is the bicycle?" in cut.content
        assert NEEDLE.strip() in cut.content
        assert cut.parts == (cut.content, Image("data:image/png;base64,AA"))


@pytest.mark.parametrize("factor", [0.6, 1.4])
async def test_a_document_is_cut_to_fit_a_model_that_counts_more_or_less_than_the_estimate(factor: float) -> None:
    class Counting(ScriptedModel):
        async def count_tokens(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:
            return int(factor * await super().count_tokens(messages, tools))

    file = document("notes.md", HAYSTACK.replace("the", "the bicycle"))
    asked = [file, Message("user", "Where is the bicycle?")]
    prompt = await build_prompt(Counting(window=WINDOW), "p", asked, tools=(), reply_tokens=200, block="the block")
    assert [cut.what for cut in prompt.cut] == ["notes.md"]
    assert WINDOW * 0.7 < prompt.tokens + prompt.reply_tokens <= WINDOW
    assert prompt.dropped == ()


async def test_what_no_cut_can_make_fit_is_an_error() -> None:
    said = [Message("user", "word " * 900, parts=("word", *(Image("data:,") for _ in range(3))))]
    with pytest.raises(ContextTooLong):
        await build_prompt(ScriptedModel(window=300), "persona " * 60, said, tools=(), reply_tokens=100)


async def test_earlier_exchanges_are_cut_before_they_are_left_out_and_stay_the_same() -> None:
    model = ScriptedModel(window=WINDOW)
    file = document("notes.md", HAYSTACK)
    before = [file, Message("user", "Where is the bicycle?"), Message("assistant", "In the cellar.")]
    thanks, answer = Message("user", "Thanks."), Message("assistant", "You are welcome.")
    prompts = [
        await build_prompt(model, "p", [*before, *more], tools=(), reply_tokens=200)
        for more in ([thanks], [thanks, answer])
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
    tools = session_tools(ToolContext(session, memory, "chat", "ada"))
    chat = chat_of(model, session, memory.home, *tools, most=500)
    events = list[TurnEvent]()
    receipt = await chat.turn("Where is the bicycle?", events.append)
    assert (receipt.finish, receipt.reply) == ("stop", "In the cellar.")
    assert [each["what"] for each in receipt.as_json()["window"]["cut"]] == ["memory_get"] * 2
    assert next(each.text for each in events if isinstance(each, Notice)).startswith("memory_get is too long")


CALLS = [ToolCall("a", "f", "{}"), ToolCall("b", "g", '{"x": "ü"}')]
_SAID = st.one_of(
    st.tuples(st.sampled_from(["user", "assistant", "error", "system", "summary"]), st.sampled_from(["", "x"])),
    st.lists(st.sampled_from(CALLS), unique=True, min_size=1).map(tool_call_line),
    st.sampled_from("abc").map(lambda call_id: tool_result_line(call_id, "done")),
    st.tuples(st.sampled_from(["tool", "tool_call"]), st.sampled_from(["", "not json", "[]", "{}", "[1]", '{"a": 1}'])),
)


@given(st.lists(_SAID, max_size=12))
def test_no_history_makes_a_prompt_that_a_provider_would_refuse(said: list[tuple[str, str]]) -> None:
    messages = messages_of(said)
    assert not messages or messages[0].role == "user"
    open_calls: list[str] = []
    for message in messages:
        if message.role == "tool":
            assert message.tool_call_id == open_calls.pop(0)
            continue
        assert not open_calls
        assert message.role in {"user", "assistant"}
        assert message.role == "user" or message.content or message.tool_calls
        open_calls = [call.id for call in message.tool_calls]
    assert not open_calls


def test_a_message_on_the_wire_has_the_chat_completions_form() -> None:
    said = [("user", "q"), tool_call_line(CALLS[:1]), tool_result_line("a", "42")]
    assert [message.as_openai() for message in messages_of(said)] == [
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "content": "42", "tool_call_id": "a"},
    ]


@pytest.mark.parametrize(
    ("name", "arguments", "called"),
    [
        ("web.search, please", '{"a": "ü"}', {"name": "web_search__please", "arguments": '{"a": "ü"}'}),
        ("f", '{"a": ', {"name": "f", "arguments": '{"arguments": "{\\"a\\": "}'}),
        ("f", "[1]", {"name": "f", "arguments": '{"arguments": "[1]"}'}),
        ("", "", {"name": "_", "arguments": "{}"}),
    ],
)
def test_a_call_no_provider_takes_is_shown_as_all_take_it(name: str, arguments: str, called: dict[str, str]) -> None:
    assert ToolCall("a", name, arguments).as_openai()["function"] == called


BEGIN = datetime(2026, 1, 2, tzinfo=UTC)
SAID = [TranscriptEntry(("user", "assistant")[at % 2], str(at), BEGIN + timedelta(seconds=at)) for at in range(401)]


@pytest.mark.parametrize("limit", [20, 5])
def test_the_window_keeps_its_limit_begins_with_the_user_and_stays_for_several_turns(limit: int) -> None:
    window = Window(limit)
    shown = [window.cut(SAID[: 2 * turn + 1][-limit - 1 :], 1) for turn in range(200)]
    assert max(map(len, shown)) <= limit + 1
    assert {each[0].role for each in shown} == {"user"}
    assert len({each[0].content for each in shown}) <= 2 * 2 * 200 / limit + 1


def test_a_window_whose_beginning_was_taken_back_or_cut_out_begins_at_a_message() -> None:
    window = Window(20)
    window.since = SAID[8].at
    assert [entry.content for entry in window.cut(SAID[:2], 0)] == ["0", "1"]
    assert window.cut([], 0) == []
    assert [entry.content for entry in window.cut(SAID[:1], 1)] == ["0"]

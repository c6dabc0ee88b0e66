"""From entries to messages: pairs stay whole, a user speaks first, and the window begins alike for many turns."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatbot.chat.dialogue import Window, messages_of, tool_call_line, tool_result_line
from chatbot.messages import ToolCall
from chatbot.stores.records import TranscriptEntry

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

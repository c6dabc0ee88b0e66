"""From entries to messages: pairs stay whole, a user speaks first, and the window begins alike for many turns."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

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


def test_errors_and_invented_roles_are_never_shown() -> None:
    said = [("user", "a"), ("error", "b"), ("system", "c"), ("admin", "d"), ("assistant", "e")]
    assert [message.content for message in messages_of(said)] == ["a", "e"]


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


START = datetime(2026, 1, 2, tzinfo=UTC)


def entries(count: int) -> list[TranscriptEntry]:
    roles = ("user", "assistant")
    return [TranscriptEntry(roles[at % 2], str(at), START + timedelta(seconds=at)) for at in range(count)]


def shown(turns: int, limit: int) -> list[tuple[str, int]]:
    """For each turn: the first entry shown, and how many there are before the new message."""
    window = Window(limit)
    said = []
    for turn in range(turns):
        so_far = entries(2 * turn + 1)
        kept = window.cut(so_far[-limit - 1 :], 1)
        said.append((kept[0].content, len(kept) - 1))
    return said


def test_the_window_keeps_its_limit_begins_with_the_user_and_stays_for_several_turns() -> None:
    assert shown(6, 20) == [("0", 2 * turn) for turn in range(6)]
    begins, counts = zip(*shown(200, 20), strict=True)
    assert max(counts) <= 20
    assert sum(before != after for before, after in pairwise(begins)) <= 200 / 4
    assert all(int(first) % 2 == 0 for first, _ in shown(100, 7))


def test_an_edit_that_empties_the_transcript_begins_a_new_window() -> None:
    window = Window(20)
    window.cut(entries(11), 1)
    assert window.cut([], 0) == []
    assert [entry.content for entry in window.cut(entries(1), 1)] == ["0"]

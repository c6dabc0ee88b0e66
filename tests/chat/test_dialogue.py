"""From entries to messages: pairs stay whole, and nothing but a user speaks first."""

from hypothesis import given
from hypothesis import strategies as st

from chatbot.chat.dialogue import messages_of, tool_call_line, tool_result_line
from chatbot.messages import ToolCall

CALLS = [ToolCall("a", "f", "{}"), ToolCall("b", "g", '{"x": "ü"}')]
_SAID = st.one_of(
    st.tuples(st.sampled_from(["user", "assistant", "error", "system", "summary"]), st.sampled_from(["", "x"])),
    st.lists(st.sampled_from(CALLS), unique=True, min_size=1).map(tool_call_line),
    st.sampled_from("abc").map(lambda call_id: tool_result_line(call_id, "done")),
    st.tuples(
        st.sampled_from(["tool", "tool_call"]), st.sampled_from(["", "not json", "[]", "{}", "[1]", '{"id": 1}'])
    ),
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


def test_calls_join_the_text_that_was_said_with_them() -> None:
    said = [("user", "q"), ("assistant", "wait"), tool_call_line(CALLS[:1]), tool_result_line("a", "42")]
    asked = messages_of(said)[1]
    assert (asked.content, asked.tool_calls) == ("wait", (CALLS[0],))


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

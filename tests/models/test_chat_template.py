"""Templates as strangers write them: what they refuse, what they do to contents, and that contents stay contents."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatbot.errors import RequestRefused
from chatbot.models.llama import CHATML, ChatTemplate, PromptPiece

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hello"}
ASSISTANT = {"role": "assistant", "content": "Hi"}
GEMMA = (
    "{{ bos_token }}"
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% set role = 'model' if message['role'] == 'assistant' else message['role'] %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)


def rendered(source: str | None, messages: list[dict[str, Any]]) -> str:
    return "".join(part.text for part in ChatTemplate(source, bos="<bos>").render(messages))


USERS_ONLY = "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}"


@pytest.mark.parametrize(
    ("source", "messages", "text"),
    [
        (
            None,
            [SYSTEM, USER],
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            GEMMA,
            [SYSTEM, USER, ASSISTANT, USER],
            (
                "<bos><start_of_turn>user\nBe brief.\n\nHello<end_of_turn>\n<start_of_turn>model\nHi<end_of_turn>\n"
                "<start_of_turn>user\nHello<end_of_turn>\n<start_of_turn>model\n"
            ),
        ),
        (
            GEMMA,
            [SYSTEM, USER, USER],
            "<bos><start_of_turn>user\nBe brief.\n\nHello\n\nHello<end_of_turn>\n<start_of_turn>model\n",
        ),
        (USERS_ONLY, [SYSTEM, USER], "<user>Be brief.\n\nHello"),
    ],
    ids=["none in the file", "refuses the system role", "wants strict turns", "drops the system's text"],
)
def test_each_template_gets_the_conversation_as_it_takes_it(
    source: str | None, messages: list[dict[str, Any]], text: str
) -> None:
    assert rendered(source, messages) == text


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('never') }}",
        "{{ messages[0].content }}",
        "{{ nothing.at_all }}",
        "{{ 1 / 0 }}",
        "{{ ''.__class__.__mro__ }}{% for m in messages %}{{ m.content.__class__.__subclasses__() }}{% endfor %}",
    ],
)
def test_a_template_that_fails_or_loses_a_message_refuses_the_conversation(source: str) -> None:
    with pytest.raises(RequestRefused, match="template refuses this conversation"):
        rendered(source, [USER, ASSISTANT])


def test_a_template_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(RequestRefused, match="cannot be read"):
        ChatTemplate("{% for message in %}")


@pytest.mark.parametrize(
    "content", ["{{ message.content | trim }}", "{{ message.content | upper }}", "{{ message.content[:200] }}"]
)
def test_a_content_stays_as_it_is_whatever_the_template_does_to_it(content: str) -> None:
    source = "{% for message in messages %}[INST]" + content + "[/INST]{% endfor %}"
    text = "  some Words \n" * 100
    assert rendered(source, [{"role": "user", "content": text}]) == f"[INST]{text}[/INST]"


def test_the_extras_that_templates_use_are_there() -> None:
    source = (
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.content }}{% endfor %}"
        "{{ {'a': 'é'} | tojson }}{{ strftime_now('%Y')[:2] }}"
    )
    assert rendered(source, [USER]) == 'Hello{"a": "é"}20'


def test_tool_calls_and_results_are_told_in_words() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "noon", "tool_call_id": "c"},
    ]
    text = rendered(None, messages)
    assert "assistant\nclock({})<|im_end|>" in text
    assert "user\nnoon<|im_end|>" in text


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_only_the_template_s_own_parts_are_template(contents: list[str]) -> None:
    template = ChatTemplate(CHATML)
    parts = template.render([{"role": "user", "content": content} for content in contents])
    assert [part.text for part in parts if not part.is_template] == [content for content in contents if content]
    empty = template.render([{"role": "user", "content": ""} for _ in contents])
    assert "".join(part.text for part in parts if part.is_template) == "".join(part.text for part in empty)
    assert all(isinstance(part, PromptPiece) for part in parts)

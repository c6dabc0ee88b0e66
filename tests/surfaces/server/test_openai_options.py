"""How a reply is to be made, as the official client of OpenAI asks for it, reaches the model."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from chatbot.messages import CallOptions, ReasoningDelta, TextDelta
from tests.servers.http_server import Serve, Served
from tests.surfaces.server.test_openai import HELLO, official
from tests.surfaces.server.test_openai_responses import PIXEL, Point


def _tool(name: str) -> ChatCompletionToolParam:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


TWO = {"type": "function", "function": {"name": "two"}}


@pytest.fixture
def served(http: Serve) -> Served:
    return http(['{"x": 1, "y": 2}'])


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    with official(served) as client:
        yield client


def _asked(served: Served) -> dict[str, Any]:
    return served.models["ada"].options[-1].as_openai()


def test_sampling_stops_and_biases_reach_the_model(served: Served, client: openai.OpenAI) -> None:
    wanted: dict[str, Any] = {
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 7,
        "presence_penalty": 1,
        "frequency_penalty": -1,
        "reasoning_effort": "low",
        "logit_bias": {"5": 1},
        "logprobs": True,
        "top_logprobs": 2,
    }
    client.chat.completions.create(model="ada", messages=HELLO, stop="END", **wanted)
    assert _asked(served) == {**wanted, "stop": ["END"]}


def test_settings_that_ask_for_nothing_change_nothing(served: Served, client: openai.OpenAI) -> None:
    client.chat.completions.create(
        model="ada",
        messages=HELLO,
        stop=[],
        logit_bias={},
        logprobs=False,
        top_logprobs=0,
        n=1,
        response_format={"type": "text"},
        extra_body={"top_k": 5, "prompt_cache_retention": "24h", "some_field_of_next_year": {"a": 1}},
    )
    assert _asked(served) == {}


def test_what_clients_add_to_messages_is_passed_over(served: Served, client: openai.OpenAI) -> None:
    parts = [{"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}}]
    said: Any = [
        {"role": "assistant", "content": "Hi.", "reasoning_content": "I thought.", "refusal": None, "annotations": []},
        {"role": "user", "content": parts, "name": "sam"},
    ]
    client.chat.completions.create(model="ada", messages=said)
    assert [each.content for each in served.models["ada"].prompts[-1]] == ["You are ada.", "Hi.", "hello"]


def test_a_reply_whole_or_streamed_is_parsed_into_the_clients_own_type_and_any_json_can_be_asked_for(
    served: Served, client: openai.OpenAI
) -> None:
    reply = client.chat.completions.parse(model="ada", messages=HELLO, response_format=Point)
    assert reply.choices[0].message.parsed == Point(x=1, y=2)
    asked = _asked(served)["response_format"]
    assert (asked["type"], asked["json_schema"]["name"], asked["json_schema"]["strict"]) == (
        "json_schema",
        "Point",
        True,
    )
    assert set(asked["json_schema"]["schema"]["properties"]) == {"x", "y"}
    with client.chat.completions.stream(model="ada", messages=HELLO, response_format=Point) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == Point(x=1, y=2)
    client.chat.completions.create(model="ada", messages=HELLO, response_format={"type": "json_object"})
    assert _asked(served) == {"response_format": {"type": "json_object"}}


@pytest.mark.parametrize(
    ("choice", "asked", "offered"),
    [
        ("auto", {"tool_choice": "auto"}, ["one", "two"]),
        ("none", {"tool_choice": "none"}, []),
        ("required", {"tool_choice": "required"}, ["one", "two"]),
        (TWO, {"tool_choice": TWO}, ["one", "two"]),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [TWO]}},
            {"tool_choice": "required"},
            ["two"],
        ),
    ],
)
def test_every_choice_of_a_tool_reaches_the_model(
    served: Served, client: openai.OpenAI, choice: Any, asked: dict[str, Any], offered: list[str]
) -> None:
    client.chat.completions.create(
        model="ada", messages=HELLO, tools=[_tool("one"), _tool("two")], tool_choice=choice, parallel_tool_calls=False
    )
    wanted = {} if not offered else {**asked, "parallel_tool_calls": False}
    assert _asked(served) == wanted
    assert [tool.name for tool in served.models["ada"].tools[-1]] == offered


def test_images_are_shown_to_the_model_and_noted_in_the_transcript(served: Served, client: openai.OpenAI) -> None:
    parts: Any = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": PIXEL}}]
    said: list[ChatCompletionMessageParam] = [{"role": "user", "content": parts}]
    client.chat.completions.create(model="ada", messages=said)
    reply = client.chat.completions.create(model="ada", messages=said, extra_body={"session_id": "new"})
    for prompt in served.models["ada"].prompts:
        assert [image.url for image in prompt[-1].images] == [PIXEL]
        assert prompt[-1].as_openai()["content"][0] == {"type": "text", "text": "What is this?"}
    session_id = (reply.model_extra or {})["session_id"]
    with served.client() as plain:
        messages = plain.get(f"/v1/sessions/{session_id}/messages").json()["data"]
        [kept] = plain.get(f"/v1/sessions/{session_id}/attachments").json()["data"]
    assert messages[0]["content"] == f"What is this?\n\n[picture-1.png](attachments/{kept['name']})"
    assert kept["media_type"] == "image/png"


@pytest.mark.parametrize("session", [None, "new"])
def test_a_file_is_read_for_the_model_and_kept_in_a_session(
    served: Served, client: openai.OpenAI, session: str | None
) -> None:
    url = "data:text/plain;base64,VGhlIGJpa2UgaXMgYmx1ZS4="
    parts: Any = [
        {"type": "text", "text": "Which colour?"},
        {"type": "file", "file": {"filename": "bike.txt", "file_data": url}},
    ]
    extra = {"session_id": session} if session else None
    said: list[ChatCompletionMessageParam] = [{"role": "user", "content": parts}]
    reply = client.chat.completions.create(model="ada", messages=said, extra_body=extra)
    prompt = served.models["ada"].prompts[0]
    assert [message.source for message in prompt].count("bike.txt") == 1
    assert [message.content.count("The bike is blue.") for message in prompt if message.source] == [1]
    assert prompt[-1].content.startswith("Which colour?")
    if session:
        history: Any = [*said, {"role": "assistant", "content": reply.choices[0].message.content}]
        again = client.chat.completions.create(
            model="ada", messages=[*history, {"role": "user", "content": "And now?"}], extra_body={"memory": "on"}
        )
        assert again.model_extra is not None
        assert any(message.source == "bike.txt" for message in served.models["ada"].prompts[1])


def test_thoughts_and_probabilities_come_back(http: Serve) -> None:
    likely = {"token": "Yes", "logprob": -0.1, "bytes": None, "top_logprobs": []}
    served = http([[ReasoningDelta("Let me "), ReasoningDelta("see."), TextDelta("Yes", (likely,))]])
    with official(served) as client:
        for extra in ({}, {"session_id": "new"}):
            reply = client.chat.completions.create(model="ada", messages=HELLO, logprobs=True, extra_body=extra)
            [choice] = reply.choices
            assert (choice.message.content, choice.message.model_extra) == ("Yes", {"reasoning_content": "Let me see."})
            assert choice.logprobs is not None
            assert [each.token for each in choice.logprobs.content or ()] == ["Yes"]
            chunks = list(
                client.chat.completions.create(
                    model="ada", messages=HELLO, logprobs=True, stream=True, extra_body=extra
                )
            )
            deltas = [chunk.choices[0].delta for chunk in chunks]
            assert "".join((delta.model_extra or {}).get("reasoning_content", "") for delta in deltas) == "Let me see."
            told = [chunk.choices[0].logprobs for chunk in chunks]
            assert any(each is not None and each.content and each.content[0].token == "Yes" for each in told)


def test_what_the_model_cannot_do_is_refused_and_not_dropped(http: Serve) -> None:
    served = http(["never"])
    with official(served) as client:
        client.models.list()
        client.chat.completions.create(model="ada", messages=HELLO)
        model = served.models["ada"]

        async def unknown(options: CallOptions) -> tuple[str, ...]:
            return tuple(options.as_openai().keys() & {"response_format"})

        model.unknown_options = unknown  # type: ignore[method-assign]
        with pytest.raises(openai.BadRequestError, match="cannot do that") as raised:
            client.chat.completions.create(model="ada", messages=HELLO, response_format={"type": "json_object"})
        assert (raised.value.param, raised.value.code) == ("response_format", "unsupported_value")

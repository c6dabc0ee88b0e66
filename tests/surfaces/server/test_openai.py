"""The official client of OpenAI, unchanged, against our server; how a reply is to be made reaches the model."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from functools import reduce
from http.client import HTTPConnection
from typing import Any, cast

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import BaseModel

from chatbot.errors import ContextTooLong, ProviderFailed
from chatbot.messages import CallOptions, Delta, ReasoningDelta, TextDelta
from tests.patience import PATIENCE_S
from tests.servers.http_server import Serve, Served
from tests.surfaces.server.test_access_checks import served_in

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello there"}]
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}},
}
TWO = {"type": "function", "function": {"name": "two"}}
PIXEL = "data:image/png;base64,iVBORw0KGgo="


class Point(BaseModel):
    x: int
    y: int


def _with_image(url: str) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}


@pytest.fixture
def served(http: Serve) -> Served:
    return http()


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    with official(served) as client:
        yield client


def official(served: Served, key: str = "none", retries: int = 0) -> openai.OpenAI:
    """The official client of a server."""
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key=key, max_retries=retries)


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    """A client of a server that is only asked what it refuses."""
    with served_in(tmp_path_factory, tokens=False) as served, official(served) as client:
        yield client


def test_every_answer_has_an_id_and_private_ones_are_not_stored_on_the_way(served: Served) -> None:
    with served.client() as plain:
        answers = [plain.get("/v1/models"), plain.get("/v1/nothing"), plain.post("/v1/chat/completions", json={})]
        assert len({each.headers["x-request-id"] for each in answers}) == 3
        assert {each.headers["cache-control"] for each in answers} == {"no-store"}
        assert "cache-control" not in plain.get("/health").headers
        assert plain.get("/v1/models/").content == answers[0].content  # not redirected, which would be without TLS
        head = plain.head("/v1/models")
        length = answers[0].headers["content-length"]
        assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", length)


def test_without_a_session_messages_are_sent_as_they_are_and_not_kept(served: Served, client: openai.OpenAI) -> None:
    history: list[ChatCompletionMessageParam] = [
        {"role": "user", "content": "I like chess."},
        {"role": "assistant", "content": "So do I."},
        {"role": "user", "content": [{"type": "text", "text": "And "}, {"type": "text", "text": "go?"}]},
    ]
    client.chat.completions.create(model="ada", messages=history)
    client.chat.completions.create(model="ada", messages=[{"role": "developer", "content": "Be rude."}, *HELLO])
    first, second = served.models["ada"].prompts
    whole = [("system", "You are ada."), ("user", "I like chess."), ("assistant", "So do I."), ("user", "And \ngo?")]
    assert [(each.role, each.content) for each in first] == whole
    assert [(each.role, each.content) for each in second] == [("system", "Be rude."), ("user", "hello there")]
    with served.client() as plain:
        assert plain.get("/v1/sessions").json()["data"] == []
        assert plain.get("/v1/memories").json()["data"] == []


def test_a_route_of_openai_that_is_not_here_is_said_to_be_missing_with_those_that_are(refusing: openai.OpenAI) -> None:
    shorter = refusing.with_options(base_url=str(refusing.base_url).replace("/v1", ""))
    for call in (refusing.files.list, refusing.conversations.create, shorter.models.list):
        with pytest.raises(openai.NotFoundError, match=r"no (/v1)?/\w+: .* /v1/chat/completions, ") as raised:
            call()
        assert raised.value.code == "not_found"


def test_the_identity_is_an_extension_stronger_than_the_model(served: Served, client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(model="ada", messages=HELLO, extra_body={"identity": "grace"})
    assert reply.model == "grace"
    assert served.models["grace"].prompts[0][0].content == "You are grace."
    assert client.chat.completions.create(model="default", messages=HELLO).model == "ada"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"identity": "nobody"}, 404, "identity_not_found"),
        ({"session_id": "0196d5e4-0000-7000-8000-000000000000"}, 404, "session_not_found"),
        ({"session_id": "../ada"}, 404, "session_not_found"), ({"sesion_id": "new"}, 400, "invalid_value"),
        ({"model": "gpt-5"}, 404, "model_not_found"), ({"n": 2}, 400, "unsupported_value"),
        ({"messages": []}, 400, "invalid_value"),
        (_with_image("https://example.org/cat.png"), 400, "unsupported_value"),
        (_with_image("data:text/html;base64,AAAA"), 400, "unsupported_value"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, 400, "unsupported_value"),
        ({"messages": [{"role": "tool", "content": "x"}]}, 400, "invalid_value"),
        ({"temperature": 3}, 400, "invalid_value"), ({"top_logprobs": 2}, 400, "invalid_value"),
        ({"stop": ["x"] * 17}, 400, "invalid_value"), ({"logit_bias": {"5": 101}}, 400, "invalid_value"),
        ({"response_format": {"type": "xml"}}, 400, "unsupported_value"),
        ({"response_format": {"type": "json_schema"}}, 400, "invalid_value"),
        ({"tool_choice": "required"}, 400, "invalid_value"),
        ({"tools": [WEATHER], "tool_choice": "sometimes"}, 400, "invalid_value"),
        ({"tools": [WEATHER], "tool_choice": TWO}, 400, "invalid_value"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {}}}, 400, "invalid_value"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "weather"}}, 400, "invalid_value"),
        ({"tools": [{"type": "web_search"}]}, 400, "unsupported_value"),
        ({"web_search_options": {}}, 400, "unsupported_value"),
        ({"messages": [{"role": "user", "content": " "}], "session_id": "new"}, 400, "invalid_value"),
        ({"messages": [{"role": "assistant", "content": "x"}], "session_id": "new"}, 400, "unsupported_value"),
        ({"session_id": "new", "previous_response_id": "resp_1"}, 400, "invalid_value"),
        ({"previous_response_id": "resp_1"}, 404, "previous_response_not_found"), ({"input": ""}, 400, "invalid_value"),
        ({"input": [{"type": "computer_call"}]}, 400, "unsupported_value"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, 400, "invalid_value"),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "a"}]}]}, 400, "unsupported_value"),
        ({"input": "hi", "tools": [{"type": "web_search"}]}, 400, "unsupported_value"),
        ({"input": "hi", "tools": [{"type": "function", "name": "a b"}]}, 400, "invalid_value"),
        ({"input": "hi", "text": {"format": {"type": "json_schema", "name": "a b"}}}, 400, "invalid_value"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": 3}]}]}, 400, "invalid_value"),
        ({"input": "hi", "reasoning": {"effort": 3}}, 400, "invalid_value"),
        ({"input": "hi", "tool_choice": "required"}, 400, "invalid_value"),
        ({"input": "hi", "background": True}, 400, "unsupported_value"),
        ({"input": "hi", "prompt": {"id": "x"}}, 400, "unsupported_value"),
        ({"input": "hi", "conversation": "0196d5e4-0000-7000-8000-000000000000"}, 404, "session_not_found"),
        ({"input": "hi", "previous_response_id": "resp_0"}, 404, "previous_response_not_found"),
        ({"input": "hi", "conversation": "new", "previous_response_id": "resp_0"}, 400, "invalid_value"),
        ({"input": "hi", "temperature": 5}, 400, "invalid_value"),
    ],
)  # fmt: skip
def test_the_impossible_is_an_error(refusing: openai.OpenAI, body: dict[str, object], status: int, code: str) -> None:
    path, asked = ("/responses", {}) if "input" in body else ("/chat/completions", {"messages": HELLO})
    with pytest.raises(openai.APIStatusError) as raised:
        refusing.post(path, cast_to=object, body={"model": "ada", **asked, **body})
    assert (raised.value.status_code, raised.value.code) == (status, code)
    assert raised.value.type
    place = raised.value.param.split(".") if raised.value.param else []
    there = place[:-1] if "field required" in raised.value.message else place
    reduce(lambda found, part: found[int(part) if isinstance(found, list) else part], there, cast("Any", asked | body))
    assert "{" not in raised.value.message.partition("{'error'")[0]


def test_a_failure_has_its_status_before_the_first_word_and_is_raised_in_the_middle_of_a_stream(http: Serve) -> None:
    replies = [ContextTooLong("too long"), ProviderFailed("down"), [TextDelta("Half a "), ProviderFailed("it is dead")]]
    with official(http(replies)) as client:
        with pytest.raises(openai.BadRequestError, match="too long") as raised:
            client.chat.completions.create(model="ada", messages=HELLO, stream=True)
        assert raised.value.code == "context_length_exceeded"
        with pytest.raises(openai.InternalServerError, match="down"):
            client.chat.completions.create(model="ada", messages=HELLO, extra_body={"session_id": "new"})
        stream = client.chat.completions.create(model="ada", messages=HELLO, stream=True)
        with pytest.raises(openai.APIError, match="it is dead"):
            list(stream)


@pytest.mark.parametrize("asked", [{"messages": HELLO}, {"input": "hello there"}, {"messages": HELLO, "stream": True}])
def test_a_reply_outside_of_a_session_ends_when_its_client_leaves(http: Serve, asked: dict[str, Any]) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def deltas() -> AsyncIterator[Delta]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        yield TextDelta("Once upon")

    served = http([deltas])
    connection = HTTPConnection(*served.address)
    path, body = "responses" if "input" in asked else "chat/completions", json.dumps({"model": "ada", **asked})
    connection.request("POST", f"/v1/{path}", body, {"Content-Type": "application/json"})
    assert begun.wait(PATIENCE_S)
    connection.close()
    assert ended.wait(PATIENCE_S)


def _tool(name: str) -> ChatCompletionToolParam:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}


def _asked(served: Served) -> dict[str, Any]:
    return served.models["ada"].options[-1].as_openai()


def test_sampling_stops_and_biases_reach_the_model(served: Served, client: openai.OpenAI) -> None:
    wanted: dict[str, Any] = {
        "temperature": 0.5, "top_p": 0.9, "seed": 7, "presence_penalty": 1, "frequency_penalty": -1,
        "reasoning_effort": "low", "verbosity": "low", "logit_bias": {"5": 1}, "logprobs": True, "top_logprobs": 2,
    }  # fmt: skip
    client.chat.completions.create(model="ada", messages=HELLO, stop="END", max_completion_tokens=7, **wanted)
    assert (_asked(served), served.models["ada"].limits) == ({**wanted, "stop": ["END"]}, [7])


def test_settings_that_ask_for_nothing_change_nothing(served: Served, client: openai.OpenAI) -> None:
    client.chat.completions.create(
        model="ada",
        messages=HELLO,
        stop=[],
        logit_bias={},
        logprobs=False,
        top_logprobs=0,
        n=1,
        max_tokens=9,
        response_format={"type": "text"},
        extra_body={"top_k": 5, "prompt_cache_retention": "24h", "some_field_of_next_year": {"a": 1}},
    )
    assert (_asked(served), served.models["ada"].limits) == ({}, [9])


def test_what_clients_add_to_messages_is_passed_over(served: Served, client: openai.OpenAI) -> None:
    parts = [{"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}}]
    said: Any = [
        {"role": "assistant", "content": "Hi.", "reasoning_content": "I thought.", "refusal": None, "annotations": []},
        {"role": "user", "content": parts, "name": "sam"},
    ]
    client.chat.completions.create(model="ada", messages=said)
    assert [each.content for each in served.models["ada"].prompts[-1]] == ["You are ada.", "Hi.", "hello"]


@pytest.mark.parametrize(
    ("choice", "asked", "offered"),
    [
        ("auto", {"tool_choice": "auto"}, ["one", "two"]),
        ("none", {"tool_choice": "none"}, []),
        ("required", {"tool_choice": "required"}, ["one", "two"]),
        (TWO, {"tool_choice": TWO}, ["one", "two"]),
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
def test_a_file_is_read_for_the_model_and_kept(served: Served, client: openai.OpenAI, session: str | None) -> None:
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
        with served.client() as plain:
            [kept] = plain.get(f"/v1/sessions/{(reply.model_extra or {})['session_id']}/attachments").json()["data"]
        assert kept["media_type"] == "text/plain"


@pytest.mark.parametrize(
    "thoughts",
    [[ReasoningDelta("Let me "), ReasoningDelta("see.")], [TextDelta("<think>Let me see."), TextDelta("</think>\n")]],
)
def test_thoughts_and_probabilities_come_back(http: Serve, thoughts: list[Delta]) -> None:
    likely = {"token": "Yes", "logprob": -0.1, "bytes": None, "top_logprobs": []}
    served = http([[*thoughts, TextDelta("Yes", (likely,))]])
    with official(served) as client:
        for extra in ({}, {"session_id": "new"}):
            reply = client.chat.completions.create(model="ada", messages=HELLO, logprobs=True, extra_body=extra)
            [choice] = reply.choices
            assert (choice.message.content, choice.message.model_extra) == ("Yes", {"reasoning_content": "Let me see."})
            assert choice.logprobs is not None
            assert [each.token for each in choice.logprobs.content or ()] == ["Yes"]
            asked: dict[str, Any] = {"logprobs": True, "extra_body": extra}
            chunks = list(client.chat.completions.create(model="ada", messages=HELLO, stream=True, **asked))
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
        with pytest.raises(openai.BadRequestError, match="does not support it") as raised:
            client.chat.completions.create(model="ada", messages=HELLO, response_format={"type": "json_object"})
        assert (raised.value.param, raised.value.code) == ("response_format", "unsupported_value")

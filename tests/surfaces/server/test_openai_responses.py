"""`/v1/responses` and `/v1/embeddings`, as the official client of OpenAI asks for them."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import openai
import pytest
from openai.types import CreateEmbeddingResponse, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from chatbot.messages import CallOptions, ReasoningDelta, TextDelta, ToolCall
from tests.servers.http_server import Serve, Served, events
from tests.surfaces.server.test_openai import PIXEL, Point, official

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
    "strict": False,
}


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    """A client whose token remembers."""
    with official(served, served.token("ada", memory="on")) as client:
        yield client


def _session(response: Any) -> Any:
    return response.model_extra["session_id"]


def _roles(served: Served, session_id: str) -> list[str]:
    with served.client(served.token("ada")) as plain:
        return [each["role"] for each in plain.get(f"/v1/sessions/{session_id}/messages").json()["data"]]


def test_a_response_with_its_usage_for_which_what_is_null_is_not_asked(client: openai.OpenAI) -> None:
    names = ("tools", "tool_choice", "text", "reasoning", "include", "top_logprobs", "max_output_tokens", "background")
    nothing = dict.fromkeys((*names, "conversation", "previous_response_id", "store"))
    response = client.responses.create(model="ada", input="hello there", instructions="Be brief.", extra_body=nothing)
    assert response.output_text == "You said: hello there"
    assert (response.status, response.model, response.object) == ("completed", "ada", "response")
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens > 0


def test_a_streamed_response_tells_of_every_step(client: openai.OpenAI) -> None:
    events = list(client.responses.create(model="ada", input="hello there", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = list(dict.fromkeys(event.type for event in events))
    assert kinds == [
        "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
        "response.output_text.delta", "response.output_text.done", "response.content_part.done",
        "response.output_item.done", "response.completed",
    ]  # fmt: skip
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == "You said: hello there"
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == "You said: hello there"
    assert events[0].type == "response.created"
    assert events[0].response.id == events[-1].response.id


def test_a_response_follows_another_and_forks_where_the_session_went_on(served: Served, client: openai.OpenAI) -> None:
    first = client.responses.create(model="ada", input="I play chess.", conversation="new")
    assert first.conversation is not None
    assert first.conversation.id == _session(first)
    second = client.responses.create(model="ada", input="And go.", previous_response_id=first.id)
    assert _session(second) == _session(first)
    assert [each.content for each in served.models["ada"].prompts[-1] if each.role == "assistant"] == [
        "You said: I play chess."
    ]
    again = client.responses.create(model="ada", input="And cards.", previous_response_id=first.id)
    assert _session(again) != _session(first)
    assert _roles(served, _session(again)) == ["user", "assistant"] * 2
    third = client.responses.create(model="ada", input="And dice.", previous_response_id=second.id)
    assert _session(third) == _session(first)
    client.responses.create(model="ada", input="What do I play?", previous_response_id=first.id, store=False)
    prompt = served.models["ada"].prompts[-1]
    assert [each.content for each in prompt if each.role == "user"] == ["I play chess.", "What do I play?"]
    assert _roles(served, _session(first)) == ["user", "assistant"] * 3
    follow = partial(client.responses.create, model="ada", previous_response_id=third.id)
    with official(served, served.token("ada", rights=("read", "chat"))) as other, pytest.raises(openai.APIStatusError):
        other.responses.create(model="ada", input="And you?", previous_response_id=third.id)  # as a guest may not
    with ThreadPoolExecutor() as pool:
        at_once = [*pool.map(lambda text: follow(input=text), ("And go.", "And darts.", "And golf."))]
    assert [_roles(served, _session(each)) for each in at_once] == [["user", "assistant"] * 4] * 3
    assert _session(first) in map(_session, at_once)


def test_items_of_stored_responses_may_be_sent_as_references_to_them(http: Serve) -> None:
    """As the AI SDK does in the second turn of a conversation."""
    call, again = ToolCall("c1", "weather", '{"place": "Oslo"}'), ToolCall("c2", "weather", '{"place": "Rome"}')
    served = http([[ReasoningDelta("Hm."), TextDelta("I look."), call], "It rains.", again, "It is dry."], tokens=True)
    with official(served, served.token("ada", memory="on")) as client:
        said: Any = [{"role": "user", "content": "How is Oslo?"}]
        first = client.responses.create(model="ada", input=said, tools=[WEATHER])
        assert client.responses.retrieve(first.id).output[-1].type == "function_call"
        said += [{"type": "item_reference", "id": each.id} for each in first.output]
        said += [{"type": "function_call_output", "call_id": "c1", "output": "rain"}]
        second = client.responses.create(model="ada", input=said, tools=[WEATHER])
        said += [{"type": "item_reference", "id": second.output[0].id}, {"role": "user", "content": "And Rome?"}]
        asked = client.responses.create(model="ada", input=said, tools=[WEATHER]).output[0]
        said += [asked.model_dump(exclude={"id"}), {"type": "function_call_output", "call_id": "c2", "output": "dry"}]
        third = client.responses.create(model="ada", input=said, tools=[WEATHER])
        assert (third.output_text, _session(third)) == ("It is dry.", _session(first))
        prompt = [(each.role, each.content) for each in served.models["ada"].prompts[-1][1:]]
        assert prompt[1:4] == [("assistant", "I look."), ("tool", "rain"), ("assistant", "It rains.")]
        assert served.models["ada"].prompts[-1][2].tool_calls == (call,)
        other: Any = [{"type": "item_reference", "id": f"msg_{'0' * 64}0"}, *said[:1]]
        with pytest.raises(openai.NotFoundError, match="or its items"):
            client.responses.create(model="ada", input=other)


def test_what_is_not_stored_cannot_be_followed(served: Served, client: openai.OpenAI) -> None:
    response = client.responses.create(model="ada", input="I play chess.", store=False)
    assert _session(response) is None
    with pytest.raises(openai.NotFoundError, match="store: true") as raised:
        client.responses.create(model="ada", input="And go.", previous_response_id=response.id)
    assert raised.value.code == "previous_response_not_found"
    with official(served, served.token("ada")) as forgetful:
        assert _session(forgetful.responses.create(model="ada", input="I play chess.")) is None
        stored = forgetful.responses.create(model="ada", input="I play chess.", store=True)
        assert forgetful.responses.retrieve(stored.id).output_text == stored.output_text


def test_a_kept_response_can_be_read_again_until_it_is_taken_back(served: Served, client: openai.OpenAI) -> None:
    response = client.responses.create(model="ada", input="I play chess.")
    assert client.responses.retrieve(response.id).output_text == response.output_text
    with served.client(client.api_key) as plain:
        assert plain.delete(f"/v1/sessions/{_session(response)}/messages").status_code == 200
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="ada", input="And?", previous_response_id=response.id)


def test_what_is_not_stored_answers_the_call_that_waits(http: Serve) -> None:
    call = ToolCall("c1", "weather", '{"place": "Oslo"}')
    served = http([call, *["It rains."] * 4], tokens=True)
    with official(served, served.token("ada", memory="on")) as client:
        first = client.responses.create(model="ada", input="How is Oslo?", tools=[WEATHER])
        answers: Any = [{"type": "function_call_output", "call_id": "c1", "output": "rain"}]
        forged: Any = [{**answers[0], "call_id": "c2"}]
        with pytest.raises(openai.BadRequestError, match="no pending tool call"):
            client.responses.create(model="ada", input=forged, previous_response_id=first.id, store=False)
        client.responses.create(model="ada", input=answers, previous_response_id=first.id, tools=[WEATHER], store=False)
        prompt = served.models["ada"].prompts[-1]
        assert [(each.role, each.tool_calls) for each in prompt[-2:]] == [("assistant", (call,)), ("tool", ())]
        assert _roles(served, _session(first)) == ["user", "tool_call"]
        second = client.responses.create(model="ada", input=answers, previous_response_id=first.id, tools=[WEATHER])
        assert client.responses.retrieve(second.id).output_text == second.output_text == "It rains."
        assert _session(second) == _session(first)
        answers.append({"role": "user", "content": "And Rome?"})
        follow = partial(client.responses.create, model="ada", input=answers, previous_response_id=first.id)
        _, third = follow(store=False), follow()
        for prompt in served.models["ada"].prompts[-2:]:
            assert [each.role for each in prompt[-4:]] == ["user", "assistant", "tool", "user"]
        assert _roles(served, _session(third)) == ["user", "tool_call", "tool", "user", "assistant"]


def test_a_response_is_parsed_and_options_reach_the_model(http: Serve) -> None:
    served = http(['{"x": 1, "y": 2}'])
    with official(served) as client:
        parsed = client.responses.parse(model="ada", input="A point", text_format=Point, temperature=0.5)
        assert parsed.output_parsed == Point(x=1, y=2)
        image: Any = {"type": "input_image", "image_url": PIXEL, "detail": "low"}
        client.responses.create(
            model="ada",
            input=[{"role": "user", "content": [{"type": "input_text", "text": "What is this?"}, image]}],
            tools=[WEATHER],
            tool_choice={"type": "function", "name": "weather"},
            reasoning={"effort": "low"},
            text={"verbosity": "high"},
            max_output_tokens=50,
        )
    model = served.models["ada"]
    wanted = model.options[0]
    assert wanted.response_format is not None
    assert (wanted.temperature, wanted.response_format["json_schema"]["name"]) == (0.5, "Point")
    assert model.options[1] == CallOptions(
        reasoning_effort="low", verbosity="high", tool_choice={"type": "function", "function": {"name": "weather"}}
    )
    assert (model.prompts[1][-1].images[0].url, model.limits[1]) == (PIXEL, 50)


@pytest.mark.parametrize("session", [None, "new"])
def test_every_answer_is_what_the_types_of_openai_declare(http: Serve, session: str | None) -> None:
    """The client itself takes whatever comes, so its types judge what was sent."""
    likely = {"token": "Yes", "logprob": -0.1, "bytes": [89, 101, 115], "top_logprobs": []}
    call = ToolCall("c1", "weather", '{"place": "Oslo"}')
    served = http([[ReasoningDelta("Hm."), TextDelta("Yes", (likely,)), call]])
    said = {"model": "ada", "session_id": session, "top_logprobs": 1}
    asked: dict[str, Any] = {
        "chat/completions": {
            "messages": [{"role": "user", "content": "Oslo?"}],
            "logprobs": True,
            "stream_options": {"include_usage": True},
            "tools": [{"type": "function", "function": {"name": "weather"}}],
        },
        "responses": {"input": "Oslo?", "reasoning": {"effort": "low"}, "metadata": {"a": "b"}, "tools": [WEATHER]},
    }
    whole: dict[str, type[BaseModel]] = {"chat/completions": ChatCompletion, "responses": Response}
    piece: dict[str, Any] = {"chat/completions": ChatCompletionChunk, "responses": ResponseStreamEvent}
    with served.client() as plain:
        for path, body in asked.items():
            answer = plain.post(f"/v1/{path}", json=said | body)
            whole[path].model_validate_json(answer.content)
            judge = TypeAdapter(piece[path])
            with plain.stream("POST", f"/v1/{path}", json=said | body | {"stream": True}) as stream:
                pieces = [judge.validate_python(data) for _, data in events(stream) if data != "[DONE]"]
            assert len(pieces) > 5
        Model.model_validate_json(plain.get("/v1/models/ada").content)


def test_the_whole_response_is_that_of_the_last_event(http: Serve) -> None:
    call = ToolCall("c1", "weather", '{"place": "Oslo"}')
    replies = [[ReasoningDelta("Hm."), TextDelta("Let me "), TextDelta("look."), call], [ReasoningDelta("Hm.")]]
    for reply in replies:
        served = http([reply, reply])
        with official(served) as client:
            asked: dict[str, Any] = {"model": "ada", "input": "Oslo?", "tools": [WEATHER]}
            streamed = list(client.responses.create(**asked, stream=True))
            last, done = streamed[-1], [each.item for each in streamed if each.type == "response.output_item.done"]
            assert last.type == "response.completed"
            assert last.response.output == done
            whole = client.responses.create(**asked)
            assert [_without_id(item) for item in whole.output] == [_without_id(item) for item in done]
        with served.client() as plain:
            cut = json.dumps({**asked, "metadata": {"title": "half a \ud83d"}})
            answer = plain.post("/v1/responses", content=cut, headers={"content-type": "application/json"})
            assert answer.json()["metadata"] == {"title": "half a ?"}


def _without_id(item: Any) -> dict[str, Any]:
    return {name: value for name, value in item.model_dump().items() if name != "id"}


def test_an_error_names_the_item_of_the_input(client: openai.OpenAI) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"}
    forgotten: Any = [{"role": "user", "content": "Oslo?"}, call, call, {"type": "function_call_output", "output": "x"}]
    with pytest.raises(openai.BadRequestError, match="needs the tool_call_id") as raised:
        client.responses.create(model="ada", input=forgotten, instructions="Be brief.")
    assert raised.value.param == "input.3"


@pytest.fixture
def encoding(http: Serve, monkeypatch: pytest.MonkeyPatch) -> Iterator[openai.OpenAI]:
    """A client of an identity whose memory has an encoder."""
    monkeypatch.setenv("CHATBOT_EMBEDDING__MODEL", "local/minilm")
    with official(http()) as client:
        yield client


def test_texts_become_vectors_of_the_memorys_encoder(encoding: openai.OpenAI) -> None:
    client = encoding
    texts = ["I play chess.", "The game of kings is my hobby.", "Bread needs yeast."]
    told = client.embeddings.create(model="ada", input=texts)
    plain = client.embeddings.create(model="ada", input=texts[0], encoding_format="float")
    first, second, third = (each.embedding for each in told.data)
    assert first == pytest.approx(plain.data[0].embedding, abs=1e-6)
    assert _cosine(first, second) > _cosine(first, third)
    CreateEmbeddingResponse.model_validate(plain.model_dump())
    assert (told.model, told.usage.prompt_tokens > 0) == ("local/minilm", True)


def test_what_the_encoder_cannot_do_is_refused_and_what_it_does_is_done_once(encoding: openai.OpenAI) -> None:
    wrong: list[dict[str, Any]] = [{"input": [[1, 2]]}, {"input": ""}, {"input": []}, {"dimensions": 5}]
    for body in wrong:
        with pytest.raises(openai.BadRequestError):
            encoding.embeddings.create(model="ada", input="x", extra_body=body)
    asked: dict[str, Any] = {"model": "ada", "extra_headers": {"Idempotency-Key": "a"}}
    first, again = (encoding.embeddings.with_raw_response.create(input="tea", **asked) for _ in range(2))
    assert (first.text, again.headers["idempotency-replayed"]) == (again.text, "true")
    with pytest.raises(openai.ConflictError):
        encoding.embeddings.create(input="coffee", **asked)


def test_a_reply_is_found_by_its_id_after_another_one_was_asked_for_and_after_it_was_chosen_again(http: Serve) -> None:
    served = http(
        [[TextDelta("I look."), ToolCall("c", "memory_search", '{"query": "x"}')], "the first", "the second", "And."]
    )
    once = {"Idempotency-Key": "once", "X-Chatbot-Memory": "on"}
    with official(served) as client, served.client() as owner:
        first = client.responses.create(model="ada", input="Tell me.", extra_headers=once)
        assert first.output_text == "I look.\n\nthe first"
        page, entries = f"/i/ada/c/{_session(first)}", f"/v1/sessions/{_session(first)}"

        def texts(*responses: str) -> list[str]:
            again = client.responses.create(model="ada", input="Tell me.", extra_headers=once)
            return [again.output_text, *(client.responses.retrieve(each).output_text for each in responses)]

        owner.post(f"{page}/retry")
        owner.get(f"{entries}/chat").read()
        turn = owner.get(f"{entries}/receipts").json()["data"][0]["turn"]
        second = first.id[:-32] + turn.replace("-", "")
        assert texts(first.id, second) == [first.output_text, first.output_text, "the second"]
        asked = owner.get(f"{entries}/messages").json()["data"][0]
        owner.post(f"{page}/choose", data={"at": asked["at"], "reply": "1"})
        assert texts(first.id, second) == [first.output_text, first.output_text, "the second"]
        assert client.responses.retrieve(first.id).usage == first.usage
        continued = client.responses.create(model="ada", input="And?", previous_response_id=first.id)
        assert _session(continued) == _session(first)


def _cosine(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))

"""Requests to memory on the bus are answered, as the holder of the session may be answered and no further."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chatbot.hooks.hooks import MOST, Answer, Retrieve, Update
from chatbot.memory import Draft, SessionHandle
from chatbot.models import ScriptedModel
from chatbot.runtime import Options, Runtime


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    file = tmp_path / "config.toml"
    file.touch()
    async with Runtime(Options(config=file), model=ScriptedModel()) as opened:
        yield opened


async def ask(runtime: Runtime, request: Retrieve | Update) -> Answer:
    [answer] = await runtime.hooks.publish(request)
    assert isinstance(answer, Answer)
    return answer


async def of_clearance(runtime: Runtime, clearance: str) -> SessionHandle:
    return await runtime.memory.cleared_for(clearance).create_session(runtime.store_types, "chat")  # type: ignore[arg-type]


async def test_what_one_agent_asked_to_keep_another_one_is_told(runtime: Runtime) -> None:
    one, other = await of_clearance(runtime, "full"), await of_clearance(runtime, "full")
    drafts = (Draft("Anna lives in Lisbon"), Draft(""))
    kept = await ask(runtime, Update(session=one, drafts=drafts))
    assert [each.outcome for each in kept.kept] == ["added", "skipped"]
    found = await ask(runtime, Retrieve(session=other, query="Where does Anna live?"))
    assert [hit.observation.title for hit in found.hits] == ["Anna lives in Lisbon"]
    [row] = await runtime.memory.memory().get([kept.kept[0].id])
    assert row.session_id == one.id


async def test_a_request_sees_no_more_than_its_session(runtime: Runtime) -> None:
    whole = await of_clearance(runtime, "full")
    await ask(runtime, Update(session=whole, drafts=(Draft("Anna lives in Lisbon"),)))
    await ask(runtime, Update(session=whole, drafts=(Draft("Anna's code", sensitivity="secret"),)))
    for session, titles in ((whole, ["Anna lives in Lisbon"]), (await of_clearance(runtime, "familiar"), [])):
        found = await ask(runtime, Retrieve(session=session, query="Anna", limit=10))
        assert [hit.observation.title for hit in found.hits] == titles


async def test_a_request_is_bounded_and_its_refusal_is_told(runtime: Runtime) -> None:
    session = await of_clearance(runtime, "full")
    many = tuple(Draft(f"green tea {n}") for n in range(MOST + 1))
    assert "at most 50" in (await ask(runtime, Update(session=session, drafts=many))).error
    await ask(runtime, Update(session=session, drafts=many[:MOST]))
    assert len((await ask(runtime, Retrieve(session=session, query="tea", limit=10_000))).hits) == MOST
    bare = await runtime.memory.create_session(["basic_session"], "chat")
    assert "no observation store" in (await ask(runtime, Retrieve(session=bare, query="tea"))).error


async def test_a_handle_tells_its_transcript_in_short(runtime: Runtime) -> None:
    session = await of_clearance(runtime, "full")
    assert await session.summarize_episode() == ""
    await session.transcript_append("user", "How are you?")
    await session.transcript_append("user", "We decided to paint the kitchen green. And so on.")
    told = await session.summarize_episode()
    assert "- user: We decided to paint the kitchen green." in told
    assert "How are you" not in told
    assert await session.kv_entries() == []

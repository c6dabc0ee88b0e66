"""Forgotten and erased memories come back by no summary of a transcript that still holds it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from chatbot.chat.chat import Chat
from chatbot.chat.dialogue import ClientRequest
from chatbot.embed import open_memory
from chatbot.hooks.summarize import SUMMARY, evicted_entries, summarize_evicted
from chatbot.memory import Memory
from chatbot.memory.episode import KEY, MODEL_KEY, summarize_episode, without_forgotten
from chatbot.messages import Delta, ToolCallDelta
from chatbot.models import ScriptedModel
from chatbot.runtime import Runtime
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.observation import Observation
from chatbot.stores.query import EVERY
from chatbot.stores.records import format_time
from chatbot.stores.text.redaction import redact_beginning
from chatbot.transfer.exports import export_session, render_session
from tests import talk
from tests.command import project
from tests.hooks.conftest import calls_of
from tests.talk import begun, sent, talking

pytestmark = pytest.mark.usefixtures("config_is_asked_for")

WORD = "plugh"
GONE = f"We decided to name the granite harbour barge {WORD}, after the cave"
STAYS = "My sister Ingrid moved to Tromsø in March"
SAID = [
    GONE, STAYS, "The cello teacher is called Mr Abara", "We still need to buy rosin for the cello",
    "The harbour master keeps three geese behind the crane",
]  # fmt: skip
ODD = ["5", '"x"', '{"query":1e400}', '{"query":["a",{}]}']
"""Parts of a receipt in which only a person could write them."""
configure = partial(talk.configure, agent="window_entries = 4")
Away = Callable[[Memory, str], Awaitable[object]]


@pytest.fixture(autouse=True)
def _configured() -> None:
    configure()


async def say_all(chat: Chat, away: Away) -> str:
    """Say everything; the exchange with the word leaves the window, is told of in short, and then goes from memory."""
    ids = [(await chat.turn(text)).remembered for text in SAID]
    assert chat.session is not None
    assert ids[0] is not None
    assert WORD in (await chat.session.kv_get(KEY) or "")
    await away(chat.session.memory, ids[0])
    return ids[0]


@pytest.mark.parametrize("away", [Memory.purge, Memory.forget])
async def test_the_summary_of_what_left_the_window_is_made_anew_without_it(away: Away) -> None:
    model = ScriptedModel(["Noted."])
    async with talking(model=model) as (_, session, chat):
        await say_all(chat, away)
        await chat.turn("And what else is there to say of the harbour?")
        shown = sent(model)
        assert WORD not in shown
        assert "Ingrid" in shown
        assert WORD not in (await session.kv_get(KEY) or "")
        assert WORD in str(await session.transcript_read_all())


@pytest.mark.parametrize("away", [Memory.purge, Memory.forget])
async def test_a_summary_that_a_model_was_making_meanwhile_is_not_kept(away: Away, memory_home: Path) -> None:
    configure("[extraction]\nsummaries = true\n")
    model = ScriptedModel(['{"request": "What is the barge called?"}'])
    async with talking(model=model) as (runtime, session, chat):
        exchanges = [(await chat.turn(text)).remembered or "" for text in (*SAID, *SAID)]
        await runtime.hooks.wait_idle()
        await session.kv_delete(MODEL_KEY)
        entries = await without_forgotten(session, await session.transcript_read_all())
        left, summarize = await evicted_entries(session), runtime.hooks.find(SUMMARY)
        assert left is not None
        assert summarize is not None
        assert await summarize(session, entries) is not None
        await away(session.memory, exchanges[0])
        assert await summarize(session, entries) is None
        assert await summarize_evicted(session, calls_of(model, memory_home, session), left) != []
        assert await session.kv_get(MODEL_KEY) is None


@pytest.mark.parametrize("away", [Memory.purge, Memory.forget])
async def test_what_was_appended_and_went_away_is_told_by_no_summary(away: Away) -> None:
    configure("[hooks.summarize]\nevery = 1\nleast = 1\n")
    async with talking("Noted.") as (runtime, session, chat), open_memory(Path.cwd()) as memory:
        own = await memory.system.load_session(session.id, "chat")
        said = [("user", "We paint it green"), ("user", GONE), ("assistant", f"Is it called {WORD}?")]
        [exchange] = await memory.append(own, [{"role": role, "content": text} for role, text in said])
        await chat.turn(STAYS)
        await runtime.hooks.wait_idle()
        assert WORD in str(await session.memory.session_summaries(session_id=session.id))
        await away(session.memory, exchange)
        assert await session.memory.session_summaries(session_id=session.id) == []
        for text in SAID[2:]:
            await chat.turn(text)
        await runtime.hooks.wait_idle()
        [summary] = await session.memory.session_summaries(session_id=session.id)
        rows = await session.memory.every(types=["exchange"])
        assert "Ingrid" in (told := f"{summary.text()}{await session.kv_get(KEY)}{rows}")
        assert WORD not in told


@pytest.mark.parametrize("away", [Memory.purge, Memory.forget])
async def test_a_question_of_the_bot_goes_away_with_the_exchange_that_has_it(away: Away) -> None:

    async def calls() -> AsyncGenerator[Delta, None]:
        for number in range(20):
            yield ToolCallDelta(number, str(number), "look", "{}")

    asks = f"Is the barge called {WORD}?"
    model = ScriptedModel([asks, calls, asks, "Noted."])
    async with talking(model=model) as (runtime, _, chat):
        asked, again = [(await chat.turn(STAYS)).remembered or "" for _ in range(2)]
        assert asked == again  # what is said and answered again has no row of its own
        await chat.turn("Yes, barge.")
        for is_there in (True, False):
            _, other = await begun(runtime)
            prompt, _ = await other.dry_run("What is the barge?")
            shown = str(prompt.messages)
            assert ("Yes, barge." in shown, f'(the answer to "Is the barge called {WORD}?")' in shown) == (
                True,
                is_there,
            )
            if is_there:
                await away(runtime.memory.memory(), asked)
    left = [path for path in Path("identities").rglob("*") if path.is_file() and WORD.encode() in path.read_bytes()]
    assert {path.name for path in left} == {"transcript.md", *(["observations.jsonl"] if away is Memory.forget else [])}


async def test_what_another_process_erases_while_a_summary_is_made_by_rule_is_not_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def erase(exchange: str) -> None:
        async with Runtime(model=ScriptedModel(["Noted."])) as other:
            await other.memory.memory().purge(exchange)

    async with talking("Noted.") as (_, session, chat):
        exchange, place = await say_all(chat, _nothing), "chatbot.memory.episode.redact_beginning"
        await session.kv_delete(KEY)

        def meanwhile(text: str, most: int) -> str:
            monkeypatch.setattr(place, redact_beginning)
            with ThreadPoolExecutor(1) as thread:
                thread.submit(asyncio.run, erase(exchange)).result()
            return redact_beginning(text, most)

        monkeypatch.setattr(place, meanwhile)
        assert WORD not in await summarize_episode(session, (await session.transcript_read_all())[-1].at)
        assert WORD not in (await session.kv_get(KEY) or "")


async def test_a_purged_exchange_leaves_nothing_but_its_lines_in_transcripts() -> None:
    async with talking("Noted.") as (runtime, session, chat):
        await chat.turn(GONE)
        named = await chat.turn(GONE, client=ClientRequest(again=True))
        await chat.turn(STAYS)
        fork = await runtime.memory.fork_session(session.id, title=session.record.title)
        await runtime.chat(fork).turn("And what else is there to say of the harbour?")
        kept = await runtime.memory.create_session(["observations"], "chat")
        await kept.rename(f"{WORD} stays where somebody wrote it")
        assert WORD in session.record.title
        assert WORD in fork.record.title
        assert named.remembered is not None
        await runtime.memory.memory().purge(named.remembered)
        assert [each["memory"]["query"] for each in await session.receipts()] == [[], [], [STAYS]]
        [asked] = [each["memory"] for each in await fork.receipts()]
        assert (asked["query"], asked["looked_back"]) == (["And what else is there to say of the harbour?"], 1)
        titles = {each.id: each.title for each in await runtime.memory.list_sessions()}
        assert titles == {session.id: "", fork.id: "", kept.id: kept.record.title}
        await kept.rename("")
        await chat.turn("Is the harbour deep?")
    left = [path for path in Path("identities").rglob("*") if path.is_file() and WORD.encode() in path.read_bytes()]
    assert {path.name for path in left} == {"transcript.md"}


async def test_receipts_that_were_edited_by_hand_keep_no_words_of_what_is_purged_or_taken_back() -> None:
    async with talking("Noted.") as (runtime, session, chat):
        named, later = await chat.turn(GONE), await chat.turn(STAYS)
        path = next(Path("identities").rglob("receipts.jsonl"))
        first, second = path.read_text("utf-8").replace('"scripted"', r'"\uD800"').splitlines()
        odd = [f'{{"at":"{format_time(later.at)}","tools":{each},"memory":{each}}}' for each in ODD]
        path.write_text("\n".join([first, second, *odd, ""]), "utf-8")
        await session.memory.purge(named.remembered or "")
        assert WORD not in path.read_text("utf-8")
        assert "Ingrid" in render_session(await export_session(runtime.memory, session.id), "jsonl")
        await session.take_back_turn(later.at)
        assert "Ingrid" not in path.read_text("utf-8")


async def test_what_was_said_again_in_another_session_goes_from_there_too() -> None:
    async with talking("Noted.") as (runtime, session, chat):
        turn = await chat.turn(GONE)
        other, talk_again = await begun(runtime)
        again = await talk_again.turn(GONE)
        assert turn.remembered == again.remembered
        await session.memory.purge(turn.remembered or "")
        assert WORD not in f"{await session.receipts()}{await other.receipts()}"
        assert {each.title for each in await runtime.memory.list_sessions()} == {""}


async def test_what_is_only_forgotten_stands_in_its_receipt_still() -> None:
    async with talking("Noted.") as (runtime, session, chat):
        turn = await chat.turn(GONE)
        await session.memory.forget(turn.remembered or "")
        assert WORD in str(await session.receipts())
        assert WORD in (await runtime.memory.load_session(session.id, "chat")).record.title


async def test_a_receipt_holds_no_secret() -> None:
    async with talking("Noted.") as (_, session, chat):
        await chat.turn("My password is hunter2, and the shed is red")
        assert "hunter2" not in str(await session.receipts())
        assert "hunter2" not in session.record.title


@pytest.mark.parametrize("away", [Memory.purge, Memory.forget])
async def test_no_model_is_shown_it_again(away: Away) -> None:
    configure("[extraction]\nsummaries = true\n[hooks.summarize]\nevery = 6\n")
    model = ScriptedModel(["Noted."])
    async with talking(model=model) as (runtime, _, chat):
        await say_all(chat, away)
        asked = len(model.prompts)
        await chat.turn("Is the harbour deep?")
        await runtime.hooks.wait_idle()
        shown = ["".join(message.content for message in prompt) for prompt in model.prompts[asked:]]
        assert any("sum up a conversation" in each for each in shown)
        assert any("Ingrid" in each for each in shown)
        assert not [each for each in shown if WORD in each]


@pytest.mark.parametrize("how", ["purge", "hide", "use"])
async def test_where_a_subject_changed_is_told_in_no_word_of_what_is_gone_or_hidden(how: str) -> None:
    configure("[hooks.boundaries]\nwindow = 2\n")
    async with talking("…") as (runtime, session, chat):
        for text in ("How long does the sourdough need for bread?", "Does the sourdough smell of bread?"):
            await chat.turn(text)
        asked = await chat.turn("Why does the router drop the network lease?")
        await chat.turn("Where does the router log the network lease?")
        await runtime.hooks.wait_idle()
        [fact] = await session.memory.query_facts(subject=f"session:{session.id}")
        assert "router" in fact.object
        assert asked.remembered is not None
        if how == "purge":
            assert fact.id in await session.memory.purge(asked.remembered)
        else:
            await session.memory.update(
                asked.remembered, **{"sensitivity": "secret"} if how == "hide" else {"importance": 0.9}
            )
        facts = await session.memory.query_facts(subject=f"session:{session.id}", sensitivities=SENSITIVITIES)
        assert facts == ([fact] if how == "use" else [])


@pytest.mark.parametrize("how", ["take back", "purge", "purge, without a transcript", "hide"])
async def test_a_change_of_subject_that_is_found_later_holds_no_word_of_what_was_gone_before(how: str) -> None:
    stores = '["observations"]' if "without" in how else '["basic_session", "observations"]'
    project(f'[model]\nname = "scripted"\n[agents.chat]\nmemory = {stores}\n[hooks.boundaries]\nwindow = 2\n')
    async with talking("…") as (runtime, session, chat):
        for text in ("How long does the sourdough need for bread?", "Does the sourdough smell of bread?"):
            await chat.turn(text)
        kept = (await chat.turn(f"Does the {WORD} of the network have a router?")).remembered or ""
        if how == "take back":
            await chat.take_back()
        else:
            await (session.memory.update(kept, sensitivity="secret") if how == "hide" else session.memory.purge(kept))
        for text in ("Why does the router drop the network lease?", "Where does the router log the network lease?"):
            await chat.turn(text)
        await runtime.hooks.wait_idle()
        [fact] = await session.memory.query_facts(subject=f"session:{session.id}")
        assert ("router" in fact.object, WORD in fact.object) == (True, False)


async def test_what_rests_otherwise_still_stands_and_what_was_never_kept_too() -> None:
    async with talking("Noted.") as (_, session, chat):
        for text in (*SAID, "hi"):
            receipt = await chat.turn(text)
            if receipt.remembered:
                await session.memory.scope.change("archive", receipt.remembered)
        said = await session.transcript_read_all()
        assert await without_forgotten(session, said) == said
        assert await without_forgotten(session, said[1:]) == said[2:]  # the answer to a question that is not there
        assert await without_forgotten(session, []) == []


async def test_a_fork_of_the_beginning_knows_nothing_of_what_came_later() -> None:
    async with talking("Noted.") as (runtime, session, chat):
        await say_all(chat, _nothing)
        whole = await runtime.memory.fork_session(session.id)
        beginning = await runtime.memory.fork_session(session.id, at=2)
        assert WORD in (await whole.kv_get(KEY) or "")
        assert await beginning.kv_get(KEY) is None


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("away", [Memory.purge, Memory.forget])
async def test_a_fork_tells_nothing_in_short_of_what_went_away_from_its_source(away: Away, when: str) -> None:
    configure("[hooks.summarize]\nevery = 2\nleast = 2\n")
    model = ScriptedModel([*["Noted."] * len(SAID), "The harbour crane is green."])
    async with talking(model=model) as (runtime, session, chat):
        exchange = await say_all(chat, away if when == "before" else _nothing)
        fork = await runtime.memory.fork_session((await runtime.memory.fork_session(session.id)).id)
        if when == "after":
            assert WORD in (await fork.kv_get(KEY) or "")
            await runtime.chat(fork).turn("We decided to paint the harbour crane green")
            await runtime.chat(fork).turn("How many geese are there at the harbour?")
            await runtime.hooks.wait_idle()
            assert WORD in str([each.metadata for each in await fork.memory.session_summaries(session_id=fork.id)])
            await away(session.memory, exchange)
            for summary in await fork.memory.session_summaries(session_id=fork.id) if away is Memory.forget else []:
                await fork.memory.purge(summary.id)
            assert (await fork.kv_get(KEY), await fork.memory.session_summaries(session_id=fork.id)) == (None, [])
        await runtime.chat(fork).turn("And what else is there to say of the harbour?")
        assert WORD not in sent(model)
        await runtime.chat(fork).turn("Is the harbour deep?")
        await runtime.hooks.wait_idle()
        [summary] = await fork.memory.session_summaries(session_id=fork.id)
        assert WORD not in f"{summary.text()}{summary.metadata}"
        assert summary.metadata["request"] == STAYS
        assert WORD not in (await fork.kv_get(KEY) or "")
        assert WORD in str(await fork.transcript_read_all())


async def test_a_fork_gets_no_word_of_what_its_source_said_later() -> None:
    async with talking("Noted.") as (runtime, session, chat):
        await chat.turn(STAYS)
        fork = await runtime.memory.fork_session(session.id)
        await chat.turn(GONE)
        await runtime.memory.delete_session(session.id, keep_memory=True)
        records = str(await fork.records())
        assert (STAYS in records, WORD in records) == (True, False)


@pytest.mark.parametrize("between", ["nothing", "a fork", "a fork with its memories", "its memories, later"])
@pytest.mark.parametrize("away", [Memory.purge, Memory.forget])
async def test_a_fork_tells_nothing_of_what_went_away_after_its_source(away: Away, between: str) -> None:
    configure("[hooks.summarize]\nevery = 2\nleast = 2\n")
    model = ScriptedModel([*["Noted."] * len(SAID), "The harbour crane is green."])
    async with talking(model=model) as (runtime, session, chat):
        exchange = await say_all(chat, _nothing)
        source = await runtime.memory.fork_session(session.id) if "fork" in between else session
        fork = await runtime.memory.fork_session(source.id)
        said = [(await runtime.chat(fork).turn("We decided to paint the harbour crane green")).remembered]
        await runtime.hooks.wait_idle()
        is_later = between == "its memories, later"
        if is_later:
            await away(runtime.memory.memory(), exchange)
        await runtime.memory.delete_session(source.id, keep_memory="its memories" not in between)
        if not is_later:
            await away(runtime.memory.memory(), exchange)
        for text in ("How many geese are there at the harbour?", "Is the harbour deep?"):
            said.append((await runtime.chat(fork).turn(text)).remembered)
            assert WORD not in sent(model)
        await runtime.hooks.wait_idle()
        assert [each["remembered"] for each in await fork.receipts_since(fork.record.created_at)] == said
        [summary] = await fork.memory.session_summaries(session_id=fork.id)
        assert WORD not in f"{summary.text()}{summary.metadata}{await fork.kv_get(KEY)}"
        quotes = f"{(await runtime.memory.load_session(fork.id, any_agent=True)).record.title}{await fork.records()}"
        assert (WORD in quotes) == (away is Memory.forget and not is_later)
        assert WORD in str(await fork.transcript_read_all())


async def test_a_session_is_summed_up_though_a_memory_of_it_is_erased_meanwhile(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    configure("[hooks.summarize]\nevery = 2\nleast = 2\n")
    read, erased = Memory.session_summaries, list[str]()

    async def erase_and_read(memory: Memory, **wanted: Any) -> list[Observation]:
        if wanted.get("limit") == EVERY and not erased:  # the sources of the summary have been read
            erased.append((await memory.every(types=["exchange"]))[-1].id)
            await memory.purge(*erased)
        return await read(memory, **wanted)

    monkeypatch.setattr(Memory, "session_summaries", erase_and_read)
    async with talking("Noted.", "Noted.") as (runtime, session, chat):
        for text in (GONE, STAYS):
            await chat.turn(text)
            await runtime.hooks.wait_idle()
        [summary] = await session.memory.session_summaries()
        assert summary.metadata["request"] == STAYS
    assert (len(erased), caplog.text) == (1, "")


async def test_a_fork_whose_source_is_gone_goes_on() -> None:
    configure("[hooks.summarize]\nevery = 2\nleast = 2\n")
    async with talking(*["Noted."] * len(SAID), "The harbour crane is green.") as (runtime, session, chat):
        await say_all(chat, _nothing)
        fork = await runtime.memory.fork_session(session.id)
        await runtime.memory.delete_session(session.id)
        for text in ("We decided to paint the harbour crane green", "And the geese?"):
            await runtime.chat(fork).turn(text)
        await runtime.hooks.wait_idle()
        assert (await fork.memory.session_summaries(session_id=fork.id))[0].metadata["request"] == GONE


async def _nothing(_memory: Memory, _id: str) -> None:
    """Leave it."""

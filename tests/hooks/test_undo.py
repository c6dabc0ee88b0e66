"""An exchange that is taken back is gone at once: from the prompt, from memory, and from every file."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from chatbot.chat.chat import Chat
from chatbot.chat.dialogue import ClientRequest
from chatbot.cli.why import receipt_of_turn
from chatbot.embed import open_memory
from chatbot.errors import ProviderFailed, SessionNotFound
from chatbot.memory import MemorySystem, SessionHandle
from chatbot.memory.episode import (
    ModelSummary,
    keep_summary,
    kept_episode,
    kept_model_summary,
    summarize_episode,
    without_forgotten,
)
from chatbot.memory.handle import CHOICES, Choices
from chatbot.messages import ToolCall
from chatbot.models import ScriptedModel
from chatbot.runtime import Options, Runtime
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.errors import InvalidValue, StoreFailed
from chatbot.stores.observation import STATUSES
from chatbot.tools.function import FunctionTool
from tests import talk
from tests.clock import Clock
from tests.talk import SAID, sent, talking

pytestmark = pytest.mark.usefixtures("config_is_asked_for")

WORD = "plugh"
GONE = f"We decided to name the granite harbour barge {WORD}, after the cave"
FACTS = {"facts": [{"content": f"The granite barge is called {WORD}", "subject": "barge", "type": "decision"}]}


def configure(tables: str = "", *, agent: str = "") -> None:
    talk.configure(f'[memory.observations]\ncache = "{Path("cache").absolute()}"\n{tables}', agent)


def holding(word: str = WORD) -> list[str]:
    """The files that hold the word, in memory and in its caches."""
    paths = (path for root in ("identities", "cache") for path in Path(root).rglob("*") if path.is_file())
    return [str(path) for path in paths if word.encode() in path.read_bytes().lower()]


async def look_up(path: str) -> str:
    """Look something up."""
    return f"{path}: the {WORD} barge of granite was built in 1871 and carries forty tons because the harbour is deep"


TOOLS = (FunctionTool(look_up),)
CALL = ToolCall("c", "look_up", json.dumps({"path": f"{WORD}.md"}))


async def assert_gone(runtime: Runtime, session: SessionHandle, chat: Chat, model: ScriptedModel) -> None:
    rows = (await session.memory.list_observations(limit=100, statuses=STATUSES, sensitivities=SENSITIVITIES)).rows
    assert not [row for row in rows if WORD in json.dumps(row.as_json()).lower()]
    assert not [fact for fact in await session.memory.query_facts(sensitivities=SENSITIVITIES) if WORD in fact.object]
    assert not (await session.memory.search(WORD)) or WORD not in str(await session.memory.search(WORD))
    assert holding() == []
    await chat.turn("And what else is there to say about the harbour and its barges?")
    assert WORD not in sent(model).lower()
    await runtime.hooks.wait_idle()
    assert holding() == []


async def test_a_message_that_shares_its_reply_with_the_one_before_is_gone_too() -> None:
    configure()
    model = ScriptedModel(["Good."])
    async with talking(model=model) as (runtime, session, chat), open_memory(Path.cwd()) as memory:
        own = await memory.system.load_session(session.id, "chat")
        said = [{"role": "user", "content": SAID[0][0]}, {"role": "user", "content": GONE}]
        said += [*30 * [{"role": "tool", "content": "found"}], {"role": "assistant", "content": f"{WORD} it is."}]
        assert len(await memory.append(own, said)) == 1
        taken = [entry.content for entry in await chat.take_back()]
        assert (len(taken), taken[0], taken[-1]) == (32, GONE, f"{WORD} it is.")
        await assert_gone(runtime, session, chat, model)


MAKES_MUCH = "[hooks.summarize]\nevery = 1\n[hooks.boundaries]\nwindow = 1\n"


@pytest.mark.parametrize(("setting", "hours"), [("true", 0), ("true", -1), ("false", 0)])
async def test_nothing_is_made_of_what_was_said_while_memory_was_off(setting: str, hours: int) -> None:
    configure(MAKES_MUCH, agent=f"remember_exchanges = {setting}")
    is_off = setting == "true"  # then tools of memory are not offered, but a model may call them anyway
    calls = [CALL, ToolCall("w", "memory_write", json.dumps({"title": GONE}))] if is_off else [CALL]
    asks = f"Is {WORD} its name?"
    model = ScriptedModel([*calls, f"So {WORD} is its name.", asks, asks, *(reply for _, reply in SAID), "Good."])
    clock = Clock(step=timedelta(milliseconds=1))
    async with talking(model=model, tools=TOOLS, clock=clock) as (runtime, session, chat):
        await session.memory.remember("The granite barge is in the harbour")
        await session.kv_set(CHOICES, Choices(memory=not is_off).as_text())
        await chat.turn(GONE)
        assert ("granite barge is in" in sent(model)) == (setting == "false")  # that setting only remembers nothing
        await chat.turn(SAID[0][0])
        await session.kv_set(CHOICES, Choices().as_text())
        await chat.turn(SAID[0][0], client=ClientRequest(again=True))  # it was said while memory was off
        clock.move(hours=hours)
        for text, _ in SAID[1:]:
            await chat.turn(text)
        await runtime.hooks.wait_idle()
        rows = await session.memory.every(sensitivities=SENSITIVITIES)
        assert len(rows) == (5 if setting == "true" else 1)  # three exchanges and a summary
        await runtime.chat(await runtime.memory.fork_session(session.id)).turn(SAID[1][0])
    assert "observations.jsonl" not in {Path(path).name for path in holding()}


async def test_a_session_is_not_summed_up_for_what_was_said_while_memory_was_off() -> None:
    configure()
    async with talking(*(reply for _, reply in SAID)) as (runtime, session, chat):
        await session.kv_set(CHOICES, Choices(memory=False).as_text())
        for text, _ in SAID:
            await chat.turn(text)
            await session.kv_set(CHOICES, Choices().as_text())
        await runtime.end_session(session)
        await runtime.hooks.wait_idle()
        assert await session.memory.session_summaries(session_id=session.id) == []


@pytest.mark.parametrize("before", [0, 1, 4])
async def test_what_is_taken_back_is_in_no_file_and_no_prompt(before: int) -> None:
    configure(MAKES_MUCH)
    model = ScriptedModel([*(reply for _, reply in SAID[:before]), CALL, f"So {WORD} is its name.", "Nothing."])
    async with talking(model=model, tools=TOOLS) as (runtime, session, chat):
        for text, _ in SAID[:before]:
            await chat.turn(text)
        await chat.turn(GONE)
        await runtime.hooks.wait_idle()
        assert {Path(path).name for path in holding()} >= {"transcript.md", "observations.jsonl", "receipts.jsonl"}
        fork = await runtime.memory.fork_session(session.id)
        await chat.take_back()
        await runtime.chat(fork).take_back()
        await assert_gone(runtime, session, chat, model)


async def test_what_is_still_being_learned_is_waited_for_and_gone() -> None:
    configure("[extraction]\nenabled = true\n")
    model = ScriptedModel(["So be it.", json.dumps(FACTS), "Nothing."])
    async with talking(model=model) as (runtime, session, chat):
        await chat.turn(GONE)
        await chat.take_back()
        assert (await chat.bill()).by_purpose["extract"].calls == 1
        await assert_gone(runtime, session, chat, model)


@pytest.mark.parametrize("action", ["UPDATE", "DELETE"])
async def test_what_a_fact_has_replaced_or_denied_comes_back_when_it_is_taken_back(action: str) -> None:
    configure("[extraction]\nenabled = true\n[hooks.summarize]\nenabled = false\n")
    decided = {"decisions": [{"fact": 0, "action": action, "memory": 0}]}
    model = ScriptedModel(["So be it.", json.dumps(FACTS), json.dumps(decided), "Nothing."])
    async with talking(model=model) as (runtime, session, _):
        old = await session.memory.remember("The granite barge is called Zebedee", subject="barge", type="decision")
        chat = runtime.chat(session)
        await chat.turn(GONE)
        await runtime.hooks.wait_idle()
        assert await session.memory.get([old.id], count_use=False) == []
        await chat.take_back()
        [row] = await session.memory.get([old.id], count_use=False)
        assert row.superseded_by is None
        await assert_gone(runtime, session, chat, model)
    async with Runtime(model=model) as runtime:
        assert len(await runtime.memory.memory().get([old.id])) == 1


async def test_the_summary_is_made_anew_without_what_was_taken_back() -> None:
    configure("[hooks.summarize]\nevery = 5\n")
    async with talking(*(reply for _, reply in SAID), f"So the barge is {WORD}.") as (runtime, session, chat):
        for text, _ in SAID:
            await chat.turn(text)
        await chat.turn(GONE)
        await runtime.hooks.wait_idle()
        [before] = await session.memory.session_summaries(session_id=session.id)
        assert WORD in before.metadata["outcome"]
        await chat.take_back()
        assert await session.memory.session_summaries(session_id=session.id) == []
        await chat.turn("Thanks, that is all")
        await runtime.end_session(session)
        await runtime.hooks.wait_idle()
        [after] = await session.memory.session_summaries(session_id=session.id)
        assert after.metadata["request"] == SAID[0][0]
        assert len(after.derived_from) == 4
    assert holding() == []


async def test_what_had_left_the_window_is_taken_back_from_its_summary() -> None:
    configure()
    model = ScriptedModel([SAID[0][1], f"So {WORD} it is.", SAID[2][1], "Nothing."])
    async with talking(model=model) as (runtime, session, chat):
        for text in (SAID[0][0], GONE, SAID[2][0]):
            await chat.turn(text)
        compacted = await chat.compact()
        assert compacted is not None
        assert WORD in compacted.summary
        await keep_summary(session, ModelSummary(runtime.hooks._clock(), f"They named it {WORD}"))
        await chat.take_back()
        assert WORD in (await session.kv_get("episode_summary") or "")  # that exchange stands still
        await chat.take_back()
        await assert_gone(runtime, session, chat, model)
        assert "Ingrid" in sent(model)


async def test_what_a_model_told_before_stays() -> None:
    configure()
    async with talking(*(reply for _, reply in SAID)) as (_, session, chat):
        for text, _ in SAID:
            await chat.turn(text)
        asked = [entry.at for entry in await session.transcript_read_all() if entry.role == "user"]
        await keep_summary(session, ModelSummary(asked[1], "Ingrid has moved"))
        await summarize_episode(session, asked[1])
        await summarize_episode(session, asked[2])
        await summarize_episode(session, asked[3])
        assert "cello" in (await kept_episode(session)).text()
        await chat.take_back()
        await chat.take_back()
        await chat.take_back()
        episode = await kept_episode(session)
        assert (episode.until, episode.lines) == (asked[1], ())
        assert await kept_model_summary(session) == episode.by_model == ModelSummary(asked[1], "Ingrid has moved")


@pytest.mark.parametrize("later", [-5, 60])
async def test_a_clock_that_was_set_back_takes_nothing_else_along(later: int) -> None:
    configure("[hooks.summarize]\nenabled = false\n")
    clock = Clock(step=timedelta(milliseconds=1))
    async with talking(*(reply for _, reply in SAID), clock=clock) as (_, session, chat):
        await chat.turn(SAID[0][0])
        clock.move(minutes=30)
        await chat.turn(SAID[1][0])
        clock.move(minutes=-15)
        await chat.turn(SAID[2][0])
        clock.move(minutes=later)
        await chat.take_back()
        kept = await session.memory.list_observations(order="created", ascending=True)
        assert [row.user_text for row in kept.rows] == [SAID[0][0], SAID[1][0]]
        assert [each.get("taken_back", False) for each in await session.receipts()] == [False, False, True]
        assert [bool(each["memory"].get("query")) for each in await session.receipts()] == [True, True, False]


@pytest.mark.parametrize("renamed", [False, True])
async def test_a_title_by_a_model_goes_unless_somebody_gave_another(renamed: bool) -> None:  # noqa: FBT001
    configure(agent="title_by_model = true")
    async with talking("So be it.", f"The barge {WORD}", "Nothing.") as (_, session, chat):
        await chat.turn(GONE)
        assert session.record.title == f"The barge {WORD}"
        if renamed:
            await session.rename("Barges")
        await chat.take_back()
        assert session.record.title == ("Barges" if renamed else "")
        assert holding() == []
        assert (await chat.bill()).by_purpose.keys() == {"chat", "title"}


async def test_a_reply_that_is_asked_for_again_stays_unseen_and_can_be_chosen() -> None:
    configure()
    asked, model = SAID[1][0], ScriptedModel(["The cello it is.", "The viola, then.", "On we go."])
    async with talking(options=Options(identity="ada"), model=model) as (_, session, chat):
        await chat.turn(asked)
        again = await chat.turn(asked, client=ClientRequest(again=True))
        entries = await session.transcript_read_all()
        assert [each.role for each in entries] == ["user", "reply-1-assistant", "assistant"]
        assert again.at == entries[0].at
        assert await replies_remembered(session) == ["The viola, then."]
        with pytest.raises(InvalidValue, match="no reply 3"):
            await chat.choose_reply(entries[0].at, 3)
        await chat.choose_reply(entries[0].at, 1)
        lines = [(each.role, each.content) for each in await session.transcript_read_all()]
        assert lines == [("user", asked), ("reply-2-assistant", "The viola, then."), ("assistant", "The cello it is.")]
        assert await replies_remembered(session) == ["The cello it is."]
        receipts = await session.receipts()
        assert [each.get("reply_number", 1) for each in receipts] == [1, 2, 1]
        assert [len(receipt_of_turn(receipts, turn)["calls"]) for turn in (None, receipts[0]["turn"])] == [1, 1]
        with pytest.raises(SessionNotFound, match="'a' matches 2 turns"):
            receipt_of_turn([{"turn": "ab"}, {"turn": "ac"}], "a")
        assert (await chat.bill()).calls == 2
        await chat.turn("And what shall I buy for it?")
        assert "The viola, then." not in str(model.prompts[-1])
        await chat.take_back()
        await chat.take_back()
        assert await session.transcript_read_all() == []
        assert holding("viola") == []


async def test_an_answer_again_that_fails_keeps_the_reply_and_is_as_sensitive_as_another_process_says() -> None:
    configure()
    model = ScriptedModel(["The cello it is.", ProviderFailed("overloaded"), "The viola, then."])
    async with talking(options=Options(identity="ada"), model=model) as (runtime, session, chat):
        with pytest.raises(InvalidValue, match="no message to answer again"):
            await chat.turn("anything", client=ClientRequest(again=True))
        await chat.turn(SAID[1][0])
        with pytest.raises(ProviderFailed):
            await chat.turn(SAID[1][0], client=ClientRequest(again=True))
        async with MemorySystem(runtime.memory.where) as elsewhere:
            await (await elsewhere.load_session(session.id, "chat")).mark("private")
        await chat.turn(SAID[1][0], client=ClientRequest(again=True))
        roles = [each.role for each in await session.transcript_read_all()]
        assert roles == ["user", "reply-1-assistant", "reply-2-error", "assistant"]
        [row] = (await session.memory.list_observations(sensitivities=SENSITIVITIES)).rows
        assert (row.assistant_text, row.sensitivity) == ("The viola, then.", "private")


async def test_words_said_twice_stay_one_memory_whichever_reply_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise StoreFailed("the disk is full")

    configure()
    asked = f"{SAID[1][0]}, password: hunter2!x"
    model = ScriptedModel([ProviderFailed("overloaded"), "The cello it is.", "The viola, then."])
    async with talking(options=Options(identity="ada"), model=model) as (_, session, chat):
        with pytest.raises(ProviderFailed):
            await chat.turn(asked)
        assert await replies_remembered(session) == [""]
        await chat.turn(asked)
        assert await replies_remembered(session) == ["The cello it is."]
        again = await chat.turn(asked, client=ClientRequest(again=True))
        assert await replies_remembered(session) == ["The viola, then."]
        await chat.choose_reply(again.at, 1)
        assert await replies_remembered(session) == ["The cello it is."]
        with monkeypatch.context() as patched:
            patched.setattr(type(session.memory.scope.store), "purge", fail)
            with pytest.raises(StoreFailed):
                await chat.take_back()
        assert "" in await replies_remembered(session)  # the words are lost at no moment
        await chat.take_back()
        assert await replies_remembered(session) == [""]
        left = await without_forgotten(session, await session.transcript_read_all())
        assert [each.content for each in left if each.role == "user"] == [asked]


async def replies_remembered(session: SessionHandle) -> list[str]:
    rows = (await session.memory.list_observations(limit=100, sensitivities=SENSITIVITIES)).rows
    return [row.assistant_text for row in rows if row.type == "exchange"]

"""Every operation of the library, with every set of rights that lacks one, about one's own and about another's."""

from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any

import pytest

from chatbot.memory import MemorySystem, SessionHandle
from chatbot.memory.handle import Choices
from chatbot.memory.memory import Memory
from chatbot.memory.scope import Caller
from chatbot.memory.session_catalog import SessionFilter
from chatbot.memory.users_and_projects import erase_user, export_user, users_in
from chatbot.memory.writing import Draft
from chatbot.stores.access import EVERY_RIGHT, GUEST_RIGHTS, OWNER, TOOL_RIGHTS, Right
from chatbot.stores.base import AsyncResource
from chatbot.stores.errors import AccessDenied, MissingRight, UnknownObservation, UnsupportedOperation
from chatbot.stores.query import Filter
from chatbot.stores.records import SessionRecord, TranscriptEntry

STORES = ("in_memory",)
ACTOR = "token:tk_1"
SAID = "The well is behind the house"


@dataclass
class Place:
    """Something of one principal's, and the same memory as the actor may use it."""

    memory: MemorySystem
    memories: Memory
    session: SessionHandle
    author: SessionHandle
    row: str
    task: str
    fact: str
    proposal: str

    @property
    def record(self) -> SessionRecord:
        return self.session.record


Do = Callable[[Place], Awaitable[object]]


async def _stream(place: Place) -> None:
    async for _ in place.session.stream_file("transcript.md"):
        pass


def _unknown_of_others(do: Do) -> Do:
    """The same, of a profile: that of another principal holds nothing for the caller, whatever they may do."""

    async def tried(place: Place) -> None:
        if place.record.principal == ACTOR:
            await do(place)
        else:
            with pytest.raises(UnknownObservation):
                await do(place)

    return tried


MEMORIES: dict[str, tuple[str, str, Do]] = {
    "search": ("read", "read", lambda p: p.memories.search("well")),
    "search_batch": ("read", "read", lambda p: p.memories.search_batch(["well"])),
    "recall": ("read", "read", lambda p: p.memories.recall("well")),
    "nearest": ("read", "read", lambda p: p.memories.nearest([("well", Filter())])),
    "get": ("read", "read", lambda p: p.memories.get([p.row])),
    "row": ("read", "read", lambda p: p.memories.row(p.row)),
    "list_observations": ("read", "read", lambda p: p.memories.list_observations()),
    "timeline": ("read", "read", lambda p: p.memories.timeline(p.row)),
    "history": ("read", "read", lambda p: p.memories.history(p.row)),
    "resolve": ("read", "read", lambda p: p.memories.resolve(p.row)),
    "stats": ("read", "read", lambda p: p.memories.stats()),
    "vector_stats": ("read", "read", lambda p: p.memories.vector_stats()),
    "every": ("read", "read", lambda p: p.memories.every()),
    "reindex": ("curate", "curate", lambda p: p.memories.reindex()),
    "embed_memories": ("curate", "curate", lambda p: p.memories.embed_memories()),
    "note_use": ("", "", lambda p: p.memories.note_use([p.row])),
    "remember": ("write", "write", lambda p: p.memories.remember("The gate is green")),
    "remember_all": ("write", "write", lambda p: p.memories.remember_all([Draft(title="The gate is green")])),
    "update": ("write", "curate", lambda p: p.memories.update(p.row, title="It is dry")),
    "supersede": ("write", "curate", lambda p: p.memories.supersede(p.row, p.task)),
    "confirm": ("write", "curate", lambda p: p.memories.confirm(p.row)),
    "forget": ("write", "curate", lambda p: p.memories.forget(p.row)),
    "restore": ("write", "curate", lambda p: p.memories.restore(p.row)),
    "purge": ("erase", "erase", lambda p: p.memories.purge(p.row)),
    "preview_purge": ("erase", "erase", lambda p: p.memories.preview_purge(p.row)),
    "profile": ("read", "read", lambda p: p.memories.profile()),
    "standing": ("read", "read", lambda p: p.memories.standing()),
    "profile_for": ("read", "read", lambda p: p.memories.profile_for("Where do I live?")),
    "profile_set": ("write", "write", lambda p: p.memories.profile_set("home", "Graz")),
    "profile_proposals": ("read", "read", lambda p: p.memories.profile_proposals()),
    "profile_accept": ("chat", "chat", _unknown_of_others(lambda p: p.memories.profile_accept(p.proposal))),
    "profile_reject": ("write", "read", _unknown_of_others(lambda p: p.memories.profile_reject(p.proposal))),
    "profile_pin": ("write", "read", _unknown_of_others(lambda p: p.memories.profile_pin("home"))),
    "profile_forget": ("write", "read", _unknown_of_others(lambda p: p.memories.profile_forget("home"))),
    "profile_history": ("read", "read", _unknown_of_others(lambda p: p.memories.profile_history("home"))),
    "profile_learn": (
        "write",
        "write",
        lambda p: p.memories.profile_learn([("home", "Lisbon")], p.row, p.record.created_at),
    ),
    "upsert": ("write", "write", lambda p: p.memories.upsert("gate", "The gate is green")),
    "add_task": ("write", "write", lambda p: p.memories.add_task("Paint the gate")),
    "update_task": ("write", "curate", lambda p: p.memories.update_task(p.task, status="completed")),
    "tasks": ("read", "read", lambda p: p.memories.tasks()),
    "move": ("", "", lambda p: p.memories.move("well", session_id=p.session.id)),
    "summarize_session": ("write", "write", lambda p: p.memories.summarize_session("Asked", session_id=p.session.id)),
    "session_summaries": ("read", "read", lambda p: p.memories.session_summaries()),
    "people": ("read", "read", lambda p: p.memories.people()),
    "add_alias": ("write", "write", lambda p: p.memories.add_alias("Maria", "Mary")),
    "store_fact": ("write", "write", lambda p: p.memories.store_fact("a", "is", "b")),
    "query_facts": ("read", "read", lambda p: p.memories.query_facts()),
    "purge_fact": ("erase", "erase", lambda p: p.memories.purge_fact(p.fact)),
    "retract_fact": ("write", "curate", lambda p: p.memories.retract_fact(p.fact)),
}
"""The right that each operation on memory needs, for what is one's own, and for what is another's."""

SESSIONS: dict[str, tuple[str, str, Do]] = {
    "kv_get": ("read", "read", lambda p: p.session.kv_get("k")),
    "kv_set": ("write", "curate", lambda p: p.session.kv_set("k", "v")),
    "kv_delete": ("write", "curate", lambda p: p.session.kv_delete("k")),
    "kv_entries": ("read", "read", lambda p: p.session.kv_entries()),
    "choices": ("read", "read", lambda p: p.session.choices()),
    "choose": ("write", "curate", lambda p: p.session.choose(Choices())),
    "hand_over": ("erase", "erase", lambda p: p.session.hand_over([])),
    "working_memory_read": ("read", "read", lambda p: p.session.working_memory_read()),
    "transcript_append": ("write", "curate", lambda p: p.session.transcript_append("user", "hello")),
    "transcript_extend": (
        "write",
        "curate",
        lambda p: p.session.transcript_extend([TranscriptEntry("user", "hello", p.record.created_at)]),
    ),
    "transcript_read_last": ("read", "read", lambda p: p.session.transcript_read_last()),
    "transcript_read_all": ("read", "read", lambda p: p.session.transcript_read_all()),
    "transcript_count": ("read", "read", lambda p: p.session.transcript_count()),
    "transcript_drop_last": ("write", "curate", lambda p: p.session.transcript_drop_last(1)),
    "attach": ("write", "curate", lambda p: p.session.attach([(b"x", ".txt")])),
    "attachment": ("read", "read", lambda p: p.session.attachment(f"{'0' * 32}.txt")),
    "attachments": ("read", "read", lambda p: p.session.attachments()),
    "drop_unnamed_attachments": ("write", "curate", lambda p: p.session.drop_unnamed_attachments()),
    "pin": ("write", "curate", lambda p: p.session.pin()),
    "transcript_clear": ("write", "curate", lambda p: p.session.transcript_clear()),
    "rename": ("write", "curate", lambda p: p.session.rename("Wells")),
    "mark": ("write", "curate", lambda p: p.session.mark("private")),
    "note_history": ("chat", "curate", lambda p: p.session.note_history("last")),
    "receipt_append": ("write", "curate", lambda p: p.session.receipt_append({"turn": "1"})),
    "write_turn": ("write", "curate", lambda p: p.session.write_turn(receipt={"turn": "1"})),
    "take_back_turn": ("write", "curate", lambda p: p.session.take_back_turn(p.record.created_at)),
    "receipts": ("read", "read", lambda p: p.session.receipts()),
    "records": ("read", "read", lambda p: p.session.records()),
    "receipts_since": ("read", "read", lambda p: p.session.receipts_since(p.record.created_at)),
    "note_not_kept": ("write", "curate", lambda p: p.session.note_not_kept(p.record.created_at)),
    "times_not_kept": ("read", "read", lambda p: p.session.times_not_kept(p.record.created_at)),
    "remembered_since": ("read", "read", lambda p: p.session.remembered_since(p.record.created_at)),
    "list_files": ("read", "read", lambda p: p.session.list_files()),
    "stream_file": ("read", "read", _stream),
    "copy_to": ("read", "read", lambda p: p.session.copy_to(p.author)),
    "take_in": ("write", "curate", lambda p: p.session.take_in([])),
}
"""The same for what is done with a session by its handle."""

SYSTEM: dict[str, tuple[str, str, Do]] = {
    "create_session": ("chat", "chat", lambda p: p.memory.create_session(STORES, "chat")),
    "keyed_session": ("chat", "chat", lambda p: p.memory.keyed_session("k", ["in_memory"], "chat")),
    "load_session": ("", "", lambda p: p.memory.load_session(p.session.id, any_agent=True)),
    "list_sessions": ("read", "read", lambda p: p.memory.list_sessions()),
    "choose_sessions": ("read", "read", lambda p: p.memory.choose_sessions(SessionFilter())),
    "search_sessions": ("read", "read", lambda p: p.memory.search_sessions("well")),
    "latest_session": ("read", "read", lambda p: p.memory.latest_session("chat")),
    "find_session": ("read", "read", lambda p: p.memory.find_session(p.session.id)),
    "archive_session": ("write", "curate", lambda p: p.memory.archive_session(p.session.id)),
    "fork_session": ("write", "curate", lambda p: p.memory.fork_session(p.session.id)),
    "adopt_session": ("write", "write", lambda p: p.memory.adopt_session(_new(p), [])),
    "reorder_sessions": ("", "", lambda p: p.memory.reorder_sessions()),
    "delete_session": ("erase", "erase", lambda p: p.memory.delete_session(p.session.id)),
    "preview_delete": ("erase", "erase", lambda p: p.memory.preview_delete(p.session.id)),
    "erase_session": ("erase", "erase", lambda p: p.memory.erase_session(p.record)),
    "expired_sessions": ("", "", lambda p: p.memory.expired_sessions()),
    "expire_sessions": ("", "", lambda p: p.memory.expire_sessions()),
    "sessions_anywhere": ("", "", lambda p: p.memory.sessions_anywhere()),
    "maintain": ("curate", "curate", lambda p: p.memory.maintain()),
    "is_taken": ("", "", lambda p: p.memory.is_taken(p.session.id)),
    "embed": ("", "", lambda p: p.memory.embed(["well"])),
    "users_in": ("curate", "curate", lambda p: users_in(p.memory)),
    "export_user": ("read", "read", lambda p: export_user(p.memory)),
}
"""The same for the memory system. What needs nothing tells nothing that was said, or only does what time would."""

BESIDE: dict[str, set[Right]] = {
    "summarize_session": {"read"}, "mark": {"read"}, "users_in": {"read"}, "maintain": {"read"},
    "profile_set": {"read"}, "profile_accept": {"read", "write"}, "profile_reject": {"read"},
    "profile_pin": {"read", "chat"}, "profile_forget": {"read", "chat"}, "profile_learn": {"read"},
    "upsert": {"read"}, "fork_session": {"read"}, "preview_purge": {"read"}, "preview_delete": {"read"},
    "choose": {"read"}, "hand_over": {"read"},
}  # fmt: skip
EVERY = MEMORIES | SESSIONS | SYSTEM


def _new(place: Place) -> SessionRecord:
    now = place.record.created_at
    return place.memory.new_record(STORES, "chat", "Wells", created_at=now, used_at=now, origin="")


def _operations(kind: type) -> set[str]:
    named = {name for name in dir(kind) if not name.startswith("_")}
    return {
        name
        for name in named - {"aclose"}
        if iscoroutinefunction(getattr(kind, name)) or isasyncgenfunction(getattr(kind, name))
    }


def test_every_operation_says_which_right_it_needs() -> None:
    beside = _operations(AsyncResource)
    assert _operations(Memory) == set(MEMORIES), "add to MEMORIES a call of it, and its right"
    assert _operations(SessionHandle) - _operations(Memory) == set(SESSIONS), "add it to SESSIONS in the same way"
    assert _operations(MemorySystem) - _operations(Memory) - beside == set(SYSTEM) - {"users_in", "export_user"}


async def _place(system: MemorySystem, principal: str) -> Callable[[Collection[Right]], Awaitable[Place]]:
    """Make something of a principal's, and return how the actor uses it with some rights."""
    author = system.cleared_for(principal=principal)
    session = await author.create_session(STORES, "chat", title="Wells")
    await session.transcript_append("user", "Where is the well?")
    row = (await author.memory().remember(SAID)).id
    task = (await author.memory().add_task("Clean the well")).id
    fact = (await author.memory().store_fact("well", "is", "deep")).id
    await author.memory().profile_set("home", "Graz")
    proposal = (await author.cleared_for(rights=TOOL_RIGHTS).memory().profile_set("employer", "Bosch")).id

    async def used(rights: Collection[Right]) -> Place:
        actor = system.cleared_for(principal=ACTOR, rights=rights)
        held = await actor.load_session(session.id, any_agent=True)
        return Place(actor, actor.memory("chat"), held, session, row, task, fact, proposal)

    return used


def _whose() -> Iterator[Any]:
    """Operations and owners of what they are about; by day that of another only where it needs another right."""
    for name, (own, foreign, _) in EVERY.items():
        yield name, ACTOR
        yield pytest.param(name, OWNER, marks=[pytest.mark.nightly] * (own == foreign))


@pytest.mark.parametrize(("name", "owner"), [*_whose()])
async def test_an_operation_needs_its_right_and_no_other(name: str, owner: str) -> None:
    own, foreign, do = EVERY[name]
    needed: Any = own if owner == ACTOR else foreign
    async with MemorySystem(None) as system:
        with_rights = await _place(system, owner)
        if needed:
            with pytest.raises(MissingRight, match=f"the right '{needed}' is needed"):
                await do(await with_rights(EVERY_RIGHT - {needed}))
        with suppress(UnsupportedOperation, FileNotFoundError):  # a memory that writes no files has none
            await do(await with_rights(({needed} if needed else set()) | BESIDE.get(name, set())))


async def test_each_new_row_fact_and_session_names_who_wrote_it() -> None:
    async with MemorySystem(None) as system:
        guest = system.cleared_for("familiar", principal=ACTOR, rights=GUEST_RIGHTS)
        session = await guest.create_session(STORES, "chat")
        await session.memory.remember("Tea is at four")
        await session.memory.store_fact("tea", "is at", "four")
        await session.for_tools().memory.remember("Cake is at five")
        assert {row.principal for row in await system.memory().every()} == {ACTOR}
        assert {fact.principal for fact in await system.memory().query_facts()} == {ACTOR}
        assert session.record.principal == ACTOR
        await system.memory().remember("Dinner is at eight")
        assert [row.principal for row in await system.memory().every()] == [OWNER, ACTOR, ACTOR]
    async with MemorySystem(None, Caller(namespace="user:alice")) as alices:
        assert (await alices.create_session(STORES, "chat")).record.principal == "user:alice"


async def test_a_tool_call_may_never_do_more_than_read_and_write_nor_more_than_its_user() -> None:
    async with MemorySystem(None) as system:
        for rights in (EVERY_RIGHT, GUEST_RIGHTS, frozenset[Right]({"chat"}), frozenset[Right]({"read", "chat"})):
            user = system.cleared_for(principal=ACTOR, rights=rights)
            session = await user.create_session(STORES, "chat")
            tools = session.for_tools()
            assert tools.caller.rights == rights & TOOL_RIGHTS
            assert tools.confined(system).caller.rights == tools.caller.rights
            assert (tools.caller.principal, tools.confined(system).caller.principal) == (ACTOR, ACTOR)
        own = (await system.create_session(STORES, "chat")).for_tools()
        kept = await own.memory.remember(SAID)
        with pytest.raises(MissingRight):
            await own.memory.purge(kept.id)
        with pytest.raises(AccessDenied):
            own.memory.within(namespace="user:alice")
        with pytest.raises(AccessDenied):
            own.confined(system).cleared_for(principal=ACTOR)


async def test_nobody_but_the_owner_leaves_a_namespace() -> None:
    async with MemorySystem(None) as system:
        alice = system.cleared_for(namespace="user:alice")
        team = system.cleared_for(principal=ACTOR, rights=EVERY_RIGHT, namespace="team")
        inner = team.cleared_for(namespace="team/sub")
        assert inner.caller.principal == ACTOR
        ways: list[Callable[[], object]] = [
            lambda: inner.cleared_for(namespace=""), lambda: inner.memory().within(across=True),
            lambda: team.cleared_for(namespace="team/user:z", principal=OWNER), lambda: alice.cleared_for(namespace=""),
            lambda: alice.cleared_for(namespace="user:bob"), lambda: alice.cleared_for(principal=OWNER),
            lambda: alice.memory().within(namespace="user:bob"), lambda: alice.memory().within(namespace=""),
            lambda: alice.memory().within(across=True),
            lambda: system.cleared_for(principal=ACTOR).cleared_for(namespace="user:alice"),
            lambda: system.cleared_for(principal=ACTOR).memory().within(namespace="user:alice"),
        ]  # fmt: skip
        for leave in ways:
            with pytest.raises(AccessDenied):
                leave()
        assert alice.memory().within(namespace="user:alice/drafts").scope.caller.namespace == "user:alice/drafts"
        with pytest.raises(AccessDenied):
            await alice.cleared_for(namespace="").create_session(STORES, "chat")
        with pytest.raises(AccessDenied):
            await erase_user(system)


async def test_what_measures_a_memory_sees_no_more_than_its_caller() -> None:
    async with MemorySystem(None) as system:
        alice = system.cleared_for(namespace="user:alice")
        await system.memory().remember("the owner's")
        await alice.memory().remember("hers")
        seen = [
            [row.title for row in await memory.every()]
            for memory in (system.unobserved(), alice.unobserved())
            if memory
        ]
    assert seen == [["hers", "the owner's"], ["hers"]]

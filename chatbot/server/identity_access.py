"""Access of one caller to one identity: everything that the caller sees goes through it."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from chatbot.attachments.read import Upload
from chatbot.chat.chat import Chat
from chatbot.chat.dialogue import NO_CLIENT, ClientRequest
from chatbot.chat.ledger import Amount, Bill, Call, Limit, Payer
from chatbot.embedder import EmbeddingResult
from chatbot.errors import ConfigError, SessionNotFound
from chatbot.memory import Memory, MemorySystem, SessionHandle
from chatbot.memory.users_and_projects import UserErasure, check_erases, erase_user
from chatbot.messages import CallOptions, Delta, Message, ToolSpec
from chatbot.models.model import estimate_text
from chatbot.operations import Context
from chatbot.runtime import Runtime
from chatbot.server.callers import Accounts, ServerCaller
from chatbot.server.errors import Problem
from chatbot.server.turns import AfterTurn, KeptTurn, RemoteTurn, RunningTurn, StopRequests, Turns
from chatbot.stores.access import Right
from chatbot.stores.backend import is_blob_name
from chatbot.stores.errors import UnsupportedOperation
from chatbot.stores.loops import to_its_end

IDLE_S = 1_800.0
"""A conversation without a turn for this long counts as ended."""
_MOST_CHATS = 512

Key = tuple[str, str, str, str, frozenset[Right]]


class Chats:
    """The chats of all identities."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._chats: OrderedDict[Key, tuple[float, Runtime, Chat]] = OrderedDict()

    def of(self, runtime: Runtime, session: SessionHandle) -> Chat:
        """Return the conversation in a session, as the caller of that handle sees it."""
        own = session.caller
        key = (runtime.setup.identity.name, session.id, own.clearance, own.principal, own.rights)
        known = self._chats.pop(key, None)
        chat = known[2] if known is not None else runtime.chat(session)
        if chat.session is not None:
            if chat.session.record.project != session.record.project:
                chat.use(chat.model, runtime.tools(session, chat.model))
            chat.session.record = session.record  # it may have got another title meanwhile
        self._chats[key] = (self._clock(), runtime, chat)
        return chat

    async def end(self, runtime: Runtime, session_id: str) -> None:
        """End the conversation of a session before its deletion, so that nothing is written afterwards."""
        self.drop(runtime.setup.identity.name, session_id)
        await runtime.hooks.end_session(session_id)
        await runtime.hooks.wait_idle(session_id)  # what hooks write at the end

    def drop(self, *place: str) -> None:
        """Drop the conversations of an identity, or of one session in it, before that is closed."""
        for key in [each for each in self._chats if each[: len(place)] == place]:
            del self._chats[key]

    async def close_idle(self, is_busy: Callable[[str, str], bool]) -> int:
        """Close idle conversations, and the longest unused of too many, unless `is_busy`; return how many."""
        since = self._clock() - IDLE_S
        surplus = len(self._chats) - _MOST_CHATS
        unused = [
            key
            for at, (key, (used, _, _)) in enumerate(self._chats.items())
            if (used < since or at < surplus) and not is_busy(*key[:2])
        ]
        idle = [self._chats.pop(key) for key in unused]
        for _, runtime, chat in idle:
            await runtime.end_session(chat.session)
        return len(idle)


class IdentityAccess(Struct, frozen=True):
    """Rights of one caller to one identity. A session that is hidden from the caller is treated as missing."""

    caller: ServerCaller
    runtime: Runtime
    chats: Chats
    turns: Turns
    accounts: Accounts

    async def payers(self) -> tuple[Payer, ...]:
        """Return the payers of the caller's model calls. Raises like `Accounts.payers`."""
        return await asyncio.to_thread(self.accounts.payers, self.caller)

    @property
    def identity(self) -> str:
        """The identity's name."""
        return self.runtime.setup.identity.name

    @property
    def memory(self) -> MemorySystem:
        """The identity's memory as the caller may use it: with their clearance and rights, in their namespace."""
        return self.caller.memory_of(self.runtime.memory)

    @property
    def in_project(self) -> "IdentityAccess":
        """This access within one project: the caller's, or else the project of new sessions."""
        own = self.caller.project
        project = own if own is not None else self.runtime.setup.project or ""
        return replace(self, caller=replace(self.caller, project=project))

    @property
    def memories(self) -> Memory:
        """The memories that the caller sees. Raises `UnsupportedOperation` if the agent keeps none."""
        try:
            if not self.runtime.remembers:
                self.runtime.setup.observation_store()  # says why
        except ConfigError as error:
            raise UnsupportedOperation(str(error)) from error
        return self.memory.memory(self.runtime.agent)

    @property
    def context(self) -> Context:
        """The context of operations."""
        return Context(
            lambda: self.memories,
            self.memory,
            self.runtime.agent,
            store_types=self.runtime.store_types,
            stop_turns=self._prepare_deletion,
        )

    async def bills(self) -> Mapping[str, Bill]:
        """Return the cost of each visible session; of deleted ones, too, for a caller who sees all."""
        bills = await self.runtime.ledger.by_session()
        if self.caller.sees_all:
            return bills
        return {record.id: bills[record.id] for record in await self.memory.list_sessions() if record.id in bills}

    async def session(self, session_id: str, *, any_agent: bool = True) -> SessionHandle:
        """Open a session. Raises `SessionNotFound`, also for one that is not open to the caller; see `load_session`."""
        return await self.memory.load_session(session_id, self.runtime.agent, any_agent=any_agent)

    async def attachment(self, session_id: str, name: str) -> bytes:
        """Return the content of an attachment. Raises like `session`, and `Problem` if there is none."""
        session = await self.session(session_id)
        data = await session.attachment(name) if is_blob_name(name) else None
        if data is None:
            raise Problem(404, "file_not_found", f"the session has no attachment {name!r:.80}")
        return data

    async def new_session(self) -> SessionHandle:
        """Begin a session, which stays closed to callers with less clearance."""
        runtime = self.runtime
        if not runtime.store_types:
            raise UnsupportedOperation(f"the agent {runtime.agent!r} keeps no sessions: it has no stores")
        return await self.memory.create_session(runtime.store_types, runtime.agent)

    async def erase_user(self) -> UserErasure:
        """Delete all data of the caller's user; first stop their running turns."""
        memory = self.memory
        check_erases(memory.caller)
        for record in await memory.sessions_anywhere():
            if record.namespace == memory.caller.namespace:
                await self._prepare_deletion(record.id)
        return await erase_user(memory)

    async def chat(self, session_id: str) -> Chat:
        """Return the conversation in a session. Raises like `session`, and `WrongAgent` for another agent's."""
        session = await self.session(session_id, any_agent=False)
        session.check("chat")
        return self.chats.of(self.runtime, session)

    async def begin_turn(
        self,
        session_id: str,
        text: str,
        *,
        attachments: Sequence[Upload] = (),
        max_output_tokens: int | None = None,
        client: ClientRequest = NO_CLIENT,
        then: AfterTurn | None = None,
    ) -> RunningTurn:
        """Start a turn in a session. It continues to its end without listeners."""
        chat = await self.chat(session_id)
        client = replace(client, payers=await self.payers())
        await self._stop_requests.listen()
        turn = RunningTurn(
            chat, text, attachments=attachments, max_output_tokens=max_output_tokens, client=client, then=then
        )
        self.turns.add((self.identity, session_id), turn)
        return turn

    async def answer(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        max_output_tokens: int | None = None,
        options: CallOptions | None = None,
    ) -> AsyncGenerator[Delta, None]:
        """Ask the model for a client that keeps the conversation itself: nothing is recalled or kept except the bill.

        Deltas follow, `Finished` last; closing the generator stops the model. The persona comes first, unless
        `messages` have a system message. Raises `BudgetExceeded`, `ContextTooLong`, or the `ModelError` of the model.
        """
        runtime, most = self.runtime, self.runtime.config.model.max_output_tokens
        if not any(message.role == "system" for message in messages):
            messages = (Message("system", runtime.persona), *messages)
        calls = runtime.calls(reply_tokens=min(max_output_tokens or most, most), payers=await self.payers())
        return calls.stream("answer", messages, tools=tools, options=options)

    async def embed(self, texts: Sequence[str]) -> tuple[str, EmbeddingResult]:
        """Return the name of the memory's encoder, and its vectors of these texts; see `MemorySystem.embed`.

        Raises `BudgetExceeded` if a limit of the day is spent, unless the encoder is on this machine.
        """
        memory = self.runtime.memory
        if not memory.embeds_away:
            return await memory.embed(texts)
        calls, tokens = self.runtime.calls(reply_tokens=0, payers=await self.payers()), sum(map(estimate_text, texts))
        began = calls.clock()

        def decide(limits: Sequence[Limit]) -> Amount:
            for limit in limits:
                least = tokens if limit.unit == "tokens" else 0
                if limit.left <= least:
                    raise limit.refusal(tokens, fits_alone=limit.allowed > least)
            return Amount(tokens)

        bill: Call | None = None
        held = await calls.hold("embed", decide)

        async def settle() -> None:
            await calls.settle(held[:-1], bill)
            await calls.settle(held[-1:])  # the identity's: memory has put the call on its bill

        try:
            name, found = await memory.embed(texts)
            bill = Call(began, "", "embed", name, found.usage, 0.0)
        finally:
            await to_its_end(settle())
        return name, found

    async def kept_turn(self, session_id: str, turn: str) -> KeptTurn:
        """Return an ended turn by its id. Raises like `session`, and `TurnGone` if it was taken back."""
        return await KeptTurn.of(await self.session(session_id), turn)

    async def forget_new(self, session: SessionHandle) -> None:
        """Delete a session that was created for a request that failed."""
        await self.chats.end(self.runtime, session.id)
        with suppress(SessionNotFound):
            memory = self.runtime.memory.cleared_for(namespace=session.record.namespace)
            await memory.delete_session(session.id)

    async def turns_under_way(self, session_id: str) -> list[RunningTurn]:
        """Return the turns of a session that run in this server, in order. Raises like `session`."""
        (await self.session(session_id)).check("read")
        return self.turns.under_way((self.identity, session_id))

    async def latest_turns(self, session_id: str) -> list[RunningTurn]:
        """Return the latest turns of a session here, ended ones too. Raises like `session`."""
        (await self.session(session_id)).check("read")
        return self.turns.latest((self.identity, session_id))

    def is_answering(self, session_id: str) -> bool:
        """Return whether a turn of a session runs in this server."""
        return bool(self.turns.under_way((self.identity, session_id)))

    def claim(self, session_id: str) -> bool:
        """Return whether no turn of a session runs in this server or has claimed it; if so, claim it for the next."""
        is_free = not (self.is_answering(session_id) or (self.identity, session_id) in self.turns.claimed)
        if is_free:
            self.turns.claimed.add((self.identity, session_id))
        return is_free

    async def is_answering_elsewhere(self, session_id: str) -> bool:
        """Return whether another server or program runs a turn of a session."""
        return not self.is_answering(session_id) and await self._stop_requests.is_running(session_id)

    async def listen(self, session_id: str) -> RunningTurn | RemoteTurn | None:
        """Return the running turn of a session, here or in another server; None without one. Raises like `session`."""
        for turn in await self.turns_under_way(session_id):
            return turn
        if not await self._stop_requests.is_running(session_id):
            return None  # saves reading its receipts
        remote = await RemoteTurn.of(await self.session(session_id), self._stop_requests.lease(session_id))
        return remote if await self._stop_requests.is_running(session_id) else None

    async def stop(self, session_id: str) -> int:
        """Stop a session's turns, on any server; return how many. Their text stays. Raises like `session`."""
        (await self.session(session_id)).check("chat")
        return await self._stop_turns(session_id)

    async def _prepare_deletion(self, session_id: str) -> None:
        """Stop the turns of a session, and wait for what they still do in the background: then it can be deleted."""
        await self._stop_turns(session_id)
        await self.chats.end(self.runtime, session_id)

    async def _stop_turns(self, session_id: str) -> int:
        return await self.turns.stop((self.identity, session_id)) or await self._stop_requests.ask_to_stop(session_id)

    @property
    def _stop_requests(self) -> StopRequests:
        return self.turns.stop_requests(self.identity, self.runtime.memory.backend)

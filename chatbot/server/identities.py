"""The open identities of a server, opened on demand and closed when unused, and a probe of their storage."""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from contextvars import Context, ContextVar
from time import monotonic
from typing import Any, Self

from msgspec import Struct
from msgspec.structs import replace
from starlette.types import ASGIApp, Receive, Scope, Send

from chatbot.errors import ChatbotError, ConfigError, IdentityError, ToolError
from chatbot.identity import FILE_NAME, is_identity, is_name, list_identities
from chatbot.messages import ToolCall
from chatbot.options import Options, Setup
from chatbot.runtime import Runtime
from chatbot.server.access_checks import RateLimits
from chatbot.server.callers import Accounts, ServerCaller, Tokens
from chatbot.server.earlier_requests import EarlierRequests
from chatbot.server.identity_access import IDLE_S, Chats, IdentityAccess
from chatbot.server.sse import cancel_all
from chatbot.server.turns import Turns
from chatbot.stores.backend import Backend
from chatbot.stores.base import AsyncResource
from chatbot.stores.errors import ConflictingChange, StoreAway, StoreError, did_you_mean, nearest
from chatbot.stores.files import translated
from chatbot.stores.home import Address
from chatbot.stores.plugins import open_backend
from chatbot.telemetry import open_telemetry

logger = logging.getLogger(__name__)

_LONGEST_WAIT_S = 1.0


class StorageProbe(AsyncResource):
    """Checks, in a thread of its own, whether the storage answers; `look` returns whether its place is there."""

    def __init__(self, look: Callable[[], object]) -> None:
        self._look = look
        self._was_there = False
        self._thread = ThreadPoolExecutor(1, "storage probe")
        self._looking: asyncio.Future[object] | None = None

    async def error(self) -> StoreError | None:
        """Return why the storage cannot be used now; None if it can. Takes at most a second."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().run_in_executor(self._thread, self._look)
            # asyncio would log an error that comes too late for anybody to wait for it
            self._looking.add_done_callback(lambda looked: looked.cancelled() or looked.exception())
        await asyncio.wait([self._looking], timeout=_LONGEST_WAIT_S)
        try:
            is_there = bool(self._looking.result())
        except asyncio.InvalidStateError:
            return StoreAway(f"the storage did not answer within {_LONGEST_WAIT_S:g} s: it is away or overloaded")
        except StoreError as error:
            return error
        if self._was_there and not is_there:
            return StoreAway.gone("the folder of identities")
        self._was_there = is_there
        return None

    async def aclose(self) -> None:
        """Stop waiting for an answer."""
        if self._looking is not None:
            await cancel_all([self._looking])
        self._thread.shutdown(wait=False)


MOST_OPEN = 256
"""Number of open runtimes above which unused ones are closed; each takes 80 kB, and 10,000 memories a few MB."""
SPARED_S = 60.0
"""A runtime that was used within this time stays open: work after a turn may still need it."""

_used_by_request: ContextVar[set[str] | None] = ContextVar("_used_by_request", default=None)


class OpenRuntime(Struct):
    """A runtime, and when it was last used."""

    runtime: Runtime
    used_at: float


class OpenRuntimes(AsyncResource):
    """The open runtimes, the longest unused first. `open_one` opens one by the name of its identity.

    `is_busy` returns whether an identity must stay open. `on_close` is called before a runtime is closed, to drop other
    references to it.
    """

    def __init__(
        self,
        open_one: Callable[[str], Coroutine[Any, Any, Runtime]],
        *,
        is_busy: Callable[[str], bool],
        on_close: Callable[[str], Awaitable[None]],
    ) -> None:
        self._open_one = open_one
        self._is_busy = is_busy
        self._on_close = on_close
        self._all: OrderedDict[str, OpenRuntime] = OrderedDict()
        self._opening: dict[str, asyncio.Lock] = {}
        self._users: Counter[str] = Counter()

    async def get(self, identity: str) -> Runtime:
        """Return the runtime of an identity. It stays open until the current request is answered."""
        self._note_use(identity)
        while (opened := self._all.get(identity)) is None:
            async with self._opening.setdefault(identity, asyncio.Lock()):
                if identity not in self._all:
                    await self._open(identity)
        self._note_time(identity)
        return opened.runtime

    async def reopen(self, identity: str) -> None:
        """Open an identity again, and close its former runtime. If opening raises an error, nothing changes."""
        async with self._opening.setdefault(identity, asyncio.Lock()):
            former = self._all.get(identity)
            await self._open(identity)
            await self._on_close(identity)
        if former is not None:
            await former.runtime.aclose()

    async def close_unused(self) -> int:
        """Close runtimes unused for `IDLE_S`, and the longest unused above `MOST_OPEN`; return how many."""
        now, surplus, closed = monotonic(), len(self._all) - MOST_OPEN, 0
        for at, (identity, opened) in enumerate(list(self._all.items())):
            unused_s = now - opened.used_at
            if unused_s >= SPARED_S and (unused_s >= IDLE_S or at < surplus):
                closed += await self._close(identity, opened)
        return closed

    @contextmanager
    def request(self) -> Iterator[None]:
        """Keep runtimes that are used in the block open until it ends."""
        used: set[str] = set()
        token = _used_by_request.set(used)
        try:
            yield
        finally:
            _used_by_request.reset(token)
            for identity in used:
                self._release(identity)

    async def aclose(self) -> None:
        """Close all runtimes."""
        async with AsyncExitStack() as stack:  # one that fails leaves no other open
            while self._all:
                stack.push_async_callback(self._all.popitem()[1].runtime.aclose)

    async def _open(self, identity: str) -> None:
        # The runtime outlives this request: it must not join its trace.
        runtime = await asyncio.create_task(self._open_one(identity), context=Context())
        self._all[identity] = OpenRuntime(runtime, monotonic())

    async def _close(self, identity: str, opened: OpenRuntime) -> bool:
        if self._all.get(identity) is not opened or self._opening[identity].locked():
            return False  # it was reopened meanwhile, or is being reopened
        in_background = opened.runtime.memory.is_embedding or not opened.runtime.hooks.is_idle()
        if self._users[identity] or self._is_busy(identity) or in_background:
            self._note_time(identity)
            return False
        del self._all[identity]
        del self._opening[identity]
        await self._on_close(identity)
        await opened.runtime.aclose()
        return True

    def _note_use(self, identity: str) -> None:
        used = _used_by_request.get()
        if used is not None and identity not in used:
            used.add(identity)
            self._users[identity] += 1

    def _release(self, identity: str) -> None:
        self._users[identity] -= 1
        if not self._users[identity]:
            del self._users[identity]
        self._note_time(identity)

    def _note_time(self, identity: str) -> None:
        if (opened := self._all.get(identity)) is not None:
            opened.used_at = monotonic()
            self._all.move_to_end(identity)


class IdentityUse:
    """Innermost ASGI middleware: the runtimes of a request stay open until its whole answer is sent."""

    def __init__(self, app: ASGIApp, *, runtimes: OpenRuntimes) -> None:
        self._app = app
        self._runtimes = runtimes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        with self._runtimes.request():
            return await self._app(scope, receive, send)


_TIDIED_EVERY_S = 30.0


class Identities(AsyncResource):
    """Every identity, or the one that `options` names. Use with `async with`; `access` opens an identity for a caller.

    `open_runtime` makes the runtime of an identity from its options.
    """

    def __init__(self, options: Options | None = None, *, open_runtime: Callable[[Options], Runtime] = Runtime) -> None:
        options = options or Options()
        self._open_runtime = open_runtime
        self.setup = Setup.resolve(options)
        self._only = options.identity
        owners = self.setup.owners
        self.settings = owners.server
        self._own_telemetry = None if options.telemetry else open_telemetry(owners.telemetry, serves=True)
        self.telemetry = options.telemetry or self._own_telemetry
        self._options = replace(options, settings=self.setup.settings, telemetry=self.telemetry)
        self.tokens = Tokens(self.setup.server_home)
        self.accounts = Accounts(self.setup.server_home)
        self.requests = EarlierRequests(self.setup.server_home)
        self.rates = RateLimits()
        self.turns = Turns()
        self.at_work: set[asyncio.Task[None]] = set()
        """Requests that continue after their client has left."""
        self._backend = open_backend(self.setup.home)
        self.storage = StorageProbe(self._has_place)
        self.runtimes = OpenRuntimes(
            self._open, is_busy=lambda identity: bool(self.turns.of_identity(identity)), on_close=self._drop
        )
        self._chats = Chats()
        self._tidying: asyncio.Task[None] | None = None

    def _has_place(self) -> bool:
        """Return whether the folder of identities is there. Raises the error of a storage that takes no writes."""
        if not isinstance(self.setup.home, Address) and not self.setup.identities.is_dir():
            return False
        if refusal := self._backend.refusal():
            with translated(self.setup.identities):
                raise refusal
        return True

    def names_for(self, caller: ServerCaller) -> list[str]:
        """Return the names that the caller may know, the default one first."""
        return [name for name in self._served_names() if caller.may_enter(name)]

    def knows(self, caller: ServerCaller, name: str) -> bool:
        """Return whether a name is in `names_for`, without listing all."""
        return caller.may_enter(name) and self._serves(name)

    def default_for(self, caller: ServerCaller) -> str:
        """Return the default identity, or the first one that the caller may know. Raises `IdentityError`."""
        name = self.setup.identity.name
        if self.knows(caller, name):
            return name
        if not (known := self.names_for(caller)):
            raise IdentityError("no identity is available to you")
        return known[0]

    def may_read_metrics(self, caller: ServerCaller) -> bool:
        """Return True for a caller who may see everything of every identity, or has a metrics token."""
        return caller.metrics or (caller.sees_all and all(map(caller.may_enter, self._served_names())))

    def written_at(self, identity: str) -> int:
        """Return the time of the last change of the identity's file, in seconds since 1970; 0 if it has none."""
        file = self.setup.identities / identity / FILE_NAME
        return int(file.stat().st_mtime) if file.is_file() else 0

    async def access(self, caller: ServerCaller, identity: str | None = None) -> IdentityAccess:
        """Open an identity, or the first that the caller may know. Raises `IdentityError`, alike for hidden ones."""
        name = self.default_for(caller) if identity is None else identity
        if not self.knows(caller, name):
            raise IdentityError(f"unknown identity {name!r:.80}{did_you_mean(name, self.names_for(caller))}")
        runtime = await self.runtimes.get(name)
        runtime.memory.backend.check_there()
        return IdentityAccess(caller, runtime, self._chats, self.turns, self.accounts)

    def check_at_rest(self, identity: str) -> None:
        """Raise `ConflictingChange` while the identity is answering."""
        if self.turns.of_identity(identity):
            raise ConflictingChange("a reply is being written: save again when it is complete")

    async def reopen(self, identity: str) -> None:
        """Open an identity again with its current settings. Raises `ConflictingChange` while it is answering."""
        self.check_at_rest(identity)
        await self.runtimes.reopen(identity)

    async def warm(self) -> None:
        """Prepare the default identity for its first turn; if it cannot be opened, each request reports the error."""
        try:
            runtime = await self.runtimes.get(self.setup.identity.name)
            await runtime.ready()
        except (ChatbotError, StoreError) as error:
            logger.warning("%s cannot be prepared: %s", self.setup.identity.name, error)

    async def aclose(self) -> None:
        """Stop the running turns, then close every identity. May be called twice."""
        async with AsyncExitStack() as closing:  # the last one first; one that fails leaves no other open
            if self._own_telemetry is not None:
                closing.push_async_callback(self._own_telemetry.aclose)
            closing.callback(self._backend.close)
            closing.push_async_callback(self.storage.aclose)
            closing.push_async_callback(self.runtimes.aclose)
            closing.push_async_callback(self.turns.aclose)
            await cancel_all({*self.at_work, *filter(None, [self._tidying])})

    def _served_names(self) -> list[str]:
        usual = self.setup.identity.name
        others = () if self._only else list_identities(self.setup.identities)
        return list(dict.fromkeys([usual, *others]))

    def _serves(self, name: str) -> bool:
        if name == self.setup.identity.name:
            return True
        return not self._only and is_name(name) and is_identity(self.setup.identities / name)

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(_TIDIED_EVERY_S)
            try:
                await self._chats.close_idle(lambda *place: bool(self.turns.under_way(place)))
                await self.runtimes.close_unused()
            except Exception as error:  # noqa: BLE001 - also of a plug-in: the others must not stay open for ever
                logger.warning("an idle session or identity could not be closed: %s", error)

    async def _drop(self, identity: str) -> None:
        """Drop references to a runtime before it is closed."""
        self._chats.drop(identity)
        await self.turns.drop_backend(identity)

    async def _confirm(self, call: ToolCall) -> bool:
        """Allow only listed tools: HTTP cannot ask a user, as the caller may be a program, or gone."""
        if call.name in (listed := self.settings.unasked_tools):
            return True
        beside = "".join(f", which has {each!r}" for each in nearest(call.name, listed)[:1])
        raise ToolError(
            f"{call.name!r} needs the user's consent, which HTTP cannot ask for: call it in a chat in the "
            f"terminal, or list it in [server] unasked_tools{beside}"
        )

    async def __aenter__(self) -> Self:
        """Raise `ConfigError` if the database itself does not isolate identities."""
        await self._check_isolation(self._backend)
        return self

    async def _check_isolation(self, backend: Backend) -> None:
        if reason := await asyncio.to_thread(backend.why_not_isolated):
            raise ConfigError(reason)

    async def _open(self, identity: str) -> Runtime:
        if self._tidying is None:
            self._tidying = asyncio.create_task(self._tidy(), name="tidying")
        runtime = await asyncio.to_thread(self._open_runtime, replace(self._options, identity=identity))
        runtime.confirm = runtime.confirm or self._confirm
        await self._check_isolation(runtime.memory.backend)
        await runtime.__aenter__()
        runtime.warm()
        return runtime

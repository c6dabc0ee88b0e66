"""The open identities of a server, and a probe of their storage."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Self

from msgspec.structs import replace

from chatbot.errors import ChatbotError, ConfigError, IdentityError, ToolError
from chatbot.identity import FILE_NAME, is_name, list_identities
from chatbot.messages import ToolCall
from chatbot.options import Options, Setup
from chatbot.runtime import Runtime
from chatbot.server.access_tokens import Tokens
from chatbot.server.callers import Accounts, ServerCaller
from chatbot.server.doors import Rates
from chatbot.server.earlier_requests import Requests
from chatbot.server.identity_access import Chats, IdentityAccess
from chatbot.server.open_runtimes import OpenRuntimes
from chatbot.server.turns import Turns, cancel_all
from chatbot.stores.backend import Backend
from chatbot.stores.base import AsyncResource
from chatbot.stores.errors import ConflictingChange, StoreAway, StoreError, did_you_mean
from chatbot.stores.plugins import open_backend
from chatbot.telemetry import open_telemetry

logger = logging.getLogger(__name__)

_LONGEST_WAIT_S = 1.0


class StorageProbe(AsyncResource):
    """Checks whether the storage answers. `look` may block; one thread runs it."""

    def __init__(self, look: Callable[[], object]) -> None:
        self._look = look
        self._looking: asyncio.Future[object] | None = None

    async def error(self) -> StoreError | None:
        """Return why the storage cannot be used now; None if it can. Takes at most a second."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(asyncio.to_thread(self._look))
        await asyncio.wait([self._looking], timeout=_LONGEST_WAIT_S)
        try:
            self._looking.result()
        except asyncio.InvalidStateError:
            return StoreAway("the storage does not answer")
        except StoreError as error:
            return error
        return None

    async def aclose(self) -> None:
        """Stop waiting for an answer."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)


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
        self.requests = Requests(self.setup.server_home)
        self.rates = Rates()
        self.turns = Turns()
        self.at_work: set[asyncio.Task[None]] = set()
        """Requests that continue after their client has left."""
        self._backend = open_backend(self.setup.home)
        self.storage = StorageProbe(self._backend.is_there)
        self.runtimes = OpenRuntimes(
            self._open, is_busy=lambda identity: bool(self.turns.of_identity(identity)), on_close=self._drop
        )
        self._chats = Chats()
        self._tidying: asyncio.Task[None] | None = None

    def names_for(self, caller: ServerCaller) -> list[str]:
        """Return the names that the caller may know, the default one first."""
        return [name for name in self._served_names() if caller.may_enter(name)]

    def knows(self, caller: ServerCaller, name: str) -> bool:
        """Return whether a name is in `names_for`, without listing all."""
        return caller.may_enter(name) and self._serves(name)

    def may_read_metrics(self, caller: ServerCaller) -> bool:
        """Return True for a caller who may see everything of every identity, or has a metrics token."""
        return caller.metrics or (caller.sees_all and all(map(caller.may_enter, self._served_names())))

    def written_at(self, identity: str) -> int:
        """Return the time of the last change of the identity's file, in seconds since 1970; 0 if it has none."""
        file = self.setup.identities / identity / FILE_NAME
        return int(file.stat().st_mtime) if file.is_file() else 0

    async def access(self, caller: ServerCaller, identity: str | None = None) -> IdentityAccess:
        """Open an identity for the caller, or the first that they may know.

        Raises `IdentityError`, with the same message for an unknown identity and a hidden one.
        """
        name = self.setup.identity.name if identity is None else identity
        if not self.knows(caller, name):
            known = self.names_for(caller)
            if identity is not None:
                raise IdentityError(f"unknown identity {name!r:.80}{did_you_mean(name, known)}")
            if not known:
                raise IdentityError("no identity is available to you")
            name = known[0]
        return IdentityAccess(caller, await self.runtimes.get(name), self._chats, self.turns, self.accounts)

    def check_at_rest(self, identity: str) -> None:
        """Raise `ConflictingChange` while the identity is answering."""
        if self.turns.of_identity(identity):
            raise ConflictingChange("a reply is being written: save again when it is complete")

    async def reopen(self, identity: str) -> None:
        """Open an identity again with its current settings. If opening raises an error, nothing changes.

        Raises `ConflictingChange` while it is answering.
        """
        self.check_at_rest(identity)
        await self.runtimes.reopen(identity)

    async def warm(self) -> None:
        """Prepare the default identity, so that its first turn is as fast as the second.

        If it cannot be opened, the log and each request for it report the error.
        """
        try:
            await (await self.runtimes.get(self.setup.identity.name)).ready()
        except (ChatbotError, StoreError) as error:
            logger.warning("%s cannot be prepared: %s", self.setup.identity.name, error)

    async def aclose(self) -> None:
        """Stop the running turns, then close every identity. May be called twice."""
        await cancel_all({*self.at_work, *filter(None, [self._tidying])})
        await self.turns.aclose()
        self._chats.clear()
        await self.runtimes.aclose()
        await self.storage.aclose()
        self._backend.close()
        if self._own_telemetry is not None:
            await self._own_telemetry.aclose()

    def _served_names(self) -> list[str]:
        usual = self.setup.identity.name
        others = () if self._only else list_identities(self.setup.identities)
        return list(dict.fromkeys([usual, *others]))

    def _serves(self, name: str) -> bool:
        if name == self.setup.identity.name:
            return True
        return not self._only and is_name(name) and (self.setup.identities / name / FILE_NAME).is_file()

    async def _tidy(self) -> None:
        """Close idle sessions and identities periodically."""
        while True:
            await asyncio.sleep(_TIDIED_EVERY_S)
            try:
                await self._chats.close_idle(lambda *place: bool(self.turns.under_way(place)))
                await self.runtimes.close_unused()
            except (ChatbotError, StoreError) as error:
                logger.warning("an idle session or identity could not be closed: %s", error)

    async def _drop(self, identity: str) -> None:
        """Drop references to a runtime before it is closed."""
        self._chats.drop(identity)
        await self.turns.drop_backend(identity)

    async def _confirm(self, call: ToolCall) -> bool:
        """Allow only listed tools: HTTP cannot ask a user, as the caller may be a program, or gone."""
        if call.name in self.settings.unasked_tools:
            return True
        raise ToolError(
            f"{call.name!r} needs the user's consent, which HTTP cannot ask for: call it in a chat in the "
            "terminal, or list it in [server] unasked_tools"
        )

    async def __aenter__(self) -> Self:
        """Raise `ConfigError` if the database itself does not isolate identities."""
        await self._check_apart(self._backend)
        return self

    async def _check_apart(self, backend: Backend) -> None:
        if reason := await asyncio.to_thread(backend.why_not_apart):
            raise ConfigError(reason)

    async def _open(self, identity: str) -> Runtime:
        if self._tidying is None:
            self._tidying = asyncio.create_task(self._tidy(), name="tidying")
        runtime = await asyncio.to_thread(self._open_runtime, replace(self._options, identity=identity))
        runtime.confirm = runtime.confirm or self._confirm
        await self._check_apart(runtime.memory.backend)
        await runtime.__aenter__()
        runtime.warm()
        return runtime

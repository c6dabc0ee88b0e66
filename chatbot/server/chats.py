"""Open conversations: one object per session, because it knows what the model got in the last turn."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from chatbot.chat import Chat
from chatbot.memory import SessionHandle
from chatbot.runtime import Runtime
from chatbot.stores.access import Right

IDLE_S = 1_800.0
"""After that long without a turn, a conversation counts as left."""
_MOST = 512

Key = tuple[str, str, str, str, frozenset[Right]]


class Chats:
    """The chats of all identities."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._chats: OrderedDict[Key, tuple[float, Runtime, Chat]] = OrderedDict()

    def of(self, runtime: Runtime, session: SessionHandle) -> Chat:
        """The conversation in a session, as the holder of that handle sees it."""
        key = (runtime.setup.identity.name, session.id, session.clearance, session.principal, session.rights)
        known = self._chats.pop(key, None)
        chat = known[2] if known is not None else runtime.chat(session)
        if chat.session is not None:
            chat.session.record = session.record  # it may have got another title meanwhile
        self._chats[key] = (self._clock(), runtime, chat)
        return chat

    async def leave(self, runtime: Runtime, session_id: str) -> None:
        """Close the conversation of a session before its deletion, so that nothing is written afterwards."""
        for key in [each for each in self._chats if each[:2] == (runtime.setup.identity.name, session_id)]:
            del self._chats[key]
        await runtime.hooks.end(session_id)

    def drop(self, identity: str) -> None:
        """Forget the conversations of an identity, whose runtime is closed next."""
        for key in [each for each in self._chats if each[0] == identity]:
            del self._chats[key]

    async def let_go(self, is_busy: Callable[[str, str], bool]) -> int:
        """Close conversations that have been idle, or the longest idle of too many; return how many.

        Those for which `is_busy` returns True have a running turn and stay.
        """
        since = self._clock() - IDLE_S
        surplus = len(self._chats) - _MOST
        unused = [
            key
            for at, (key, (used, _, _)) in enumerate(self._chats.items())
            if (used < since or at < surplus) and not is_busy(*key[:2])
        ]
        leaving = [self._chats.pop(key) for key in unused]
        for _, runtime, chat in leaving:
            await runtime.leave(chat.session)
        return len(leaving)

    def clear(self) -> None:
        """Forget all conversations; closing the runtimes ends their sessions."""
        self._chats.clear()

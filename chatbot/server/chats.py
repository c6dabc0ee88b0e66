"""Conversations in use: one object for each session, for it knows what the model was given a turn ago."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from chatbot.chat import Chat
from chatbot.memory import SessionHandle
from chatbot.runtime import Runtime

IDLE_S = 1_800.0
"""After that long without a turn, a conversation counts as left."""
_MOST = 512

Key = tuple[str, str, str]


class Chats:
    """The chats of all identities."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._chats: OrderedDict[Key, tuple[float, Runtime, Chat]] = OrderedDict()

    def of(self, runtime: Runtime, session: SessionHandle) -> Chat:
        """The conversation in a session, as the holder of that handle sees it."""
        key = (runtime.setup.identity.name, session.id, session.clearance)
        known = self._chats.pop(key, None)
        chat = known[2] if known is not None else runtime.chat(session)
        if chat.session is not None:
            chat.session.record = session.record  # it may have got another title meanwhile
        self._chats[key] = (self._clock(), runtime, chat)
        return chat

    async def let_go(self, is_busy: Callable[[str, str], bool]) -> int:
        """Leave those not used for long, and of very many those not used for longest; how many.

        `is_busy` tells of an identity and a session whether a turn is under way there: it stays.
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
        """Let go of them all; whoever closes their runtimes ends their sessions."""
        self._chats.clear()

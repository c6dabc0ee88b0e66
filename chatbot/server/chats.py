"""Conversations in use: one object for each session, for it knows what the model was given a turn ago."""

from __future__ import annotations

from collections import OrderedDict

from chatbot.chat import Chat
from chatbot.memory import SessionHandle
from chatbot.runtime import Runtime

_MOST = 512


class Chats:
    """The chats of all identities; of very many, those not used for longest are let go."""

    def __init__(self) -> None:
        self._chats: OrderedDict[tuple[str, str, str], Chat] = OrderedDict()

    def of(self, runtime: Runtime, session: SessionHandle) -> Chat:
        """The conversation in a session, as the holder of that handle sees it."""
        key = (runtime.setup.identity.name, session.id, session.clearance)
        chat = self._chats.pop(key, None) or runtime.chat(session)
        if chat.session is not None:
            chat.session.record = session.record  # it may have got another title meanwhile
        self._chats[key] = chat
        while len(self._chats) > _MOST:
            self._chats.popitem(last=False)
        return chat

    def clear(self) -> None:
        """Let go of them all."""
        self._chats.clear()

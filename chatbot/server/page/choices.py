"""Choices beside the message box for one session: its model, its persona, and whether memory is used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from chatbot.chat import ClientRequest
from chatbot.memory import SessionHandle
from chatbot.memory.record import CHOICES
from chatbot.server.identity_access import IdentityAccess
from chatbot.stores.base import KeyValueStore


@dataclass(frozen=True, slots=True)
class Choices:
    """Choices of one session; an empty text means that of the identity."""

    model: str = ""
    persona: str = ""
    memory: bool = True

    @property
    def request(self) -> ClientRequest:
        """Options of a turn by these choices."""
        return ClientRequest(persona=self.persona, recalls=self.memory, keeps=self.memory)


async def choices_of(session: SessionHandle) -> Choices:
    """Return the choices of a session; the default ones where it keeps none that can be read."""
    kept = await session.kv_get(CHOICES) if session.supports(KeyValueStore) else None
    try:
        table = json.loads(kept or "{}")
        return Choices(str(table.get("model", "")), str(table.get("persona", "")), table.get("memory") is not False)
    except (ValueError, AttributeError):
        return Choices()


async def choose(access: IdentityAccess, session: SessionHandle, fields: Mapping[str, str]) -> None:
    """Keep what a form chose. Only the owner chooses a model. Raises `ModelError` for one that cannot be used."""
    before = await choices_of(session)
    after = _chosen(access, fields, before) if "chosen" in fields else before
    if after == before or not session.supports(KeyValueStore):
        return
    await access.runtime.model_named(after.model)
    await session.kv_set(CHOICES, json.dumps(asdict(after)))


async def request_of(access: IdentityAccess, session_id: str) -> ClientRequest:
    """Return how the next turn is taken, and have its model answer it. A model is not changed while a turn runs."""
    choices = await choices_of(await access.session(session_id))
    chat, model = await access.chat(session_id), await access.runtime.model_named(choices.model)
    if chat.model is not model and not await access.turns_under_way(session_id):
        chat.use(model, access.runtime.tools(chat.session, model))
    return choices.request


def _chosen(access: IdentityAccess, fields: Mapping[str, str], before: Choices) -> Choices:
    model = fields.get("model", "").strip() if access.caller.is_owner else before.model
    own = access.runtime.model_asked_for
    return Choices("" if model == own else model, fields.get("persona", "").strip(), "memory" in fields)

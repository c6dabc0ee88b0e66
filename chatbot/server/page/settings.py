"""Settings of an identity, in its `identity.toml`, whose comments stay; and the choices of one session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomlkit
from fastapi import APIRouter, Request, Response
from tomlkit import TOMLDocument
from tomlkit.exceptions import TOMLKitError

from chatbot.chat import ClientRequest
from chatbot.config import Config
from chatbot.errors import ChatbotError
from chatbot.identity import DEFAULT_PERSONA
from chatbot.memory import SessionHandle
from chatbot.memory.record import CHOICES
from chatbot.server.dependencies import IdentitiesHere
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.page.sheets import AccessHere, Fields, PageRoute, base, goto, sheet
from chatbot.stores.base import KeyValueStore
from chatbot.stores.errors import AccessDenied, ConflictingChange, InvalidValue
from chatbot.stores.files import locked, make_folder, opened


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


router = APIRouter(route_class=PageRoute, prefix="/i/{identity}/settings")


@dataclass(frozen=True, slots=True)
class SettingField:
    """One setting of the form: its place in the configuration, its kind (text, number, whole or yes), and its words."""

    place: tuple[str, ...]
    kind: str
    label: str
    hint: str = ""

    @property
    def name(self) -> str:
        """The name in the form."""
        return ".".join(self.place)

    def value(self, config: Config) -> Any:
        """Return the value in force."""
        found: Any = config
        for key in self.place:
            found = found[key] if isinstance(found, Mapping) else getattr(found, key)
        return found

    def parsed(self, text: str) -> Any:
        """Return the value of a text in the form. Raises `InvalidValue`."""
        if self.kind == "yes":
            return text == "yes"
        if self.kind == "text":
            return text.strip()
        try:
            return int(text or 0) if self.kind == "whole" else float(text or 0)
        except ValueError:
            raise InvalidValue(f"{self.label}: {text!r:.40} is not a number") from None


def _groups(agent: str) -> tuple[tuple[str, tuple[SettingField, ...]], ...]:
    """The form: its headings with their settings."""
    of_agent = ("agents", agent)
    model = SettingField(
        ("model", "name"), "text", "Model", "As LiteLLM names it, such as openai/gpt-5 or ollama/llama3.2"
    )
    per_session = SettingField(("budget", "session_usd"), "number", "Maximum US dollars per session", "0: no limit")
    per_day = SettingField(("budget", "day_usd"), "number", "Maximum US dollars per day", "0: no limit")
    keeps = SettingField(
        (*of_agent, "remember_exchanges"),
        "yes",
        "Remember conversations",
        "For new messages; existing memories stay",
    )
    rows = SettingField((*of_agent, "recall_rows"), "whole", "Maximum memories in a prompt", "0: recall nothing")
    ttl = SettingField(
        ("sessions", "ttl_days"), "number", "Delete a session after this many days without use", "0: never"
    )
    decay = SettingField(
        ("maintenance", "decay_per_day"),
        "number",
        "Share of its strength that an unused memory loses per day",
        "0: memories do not fade",
    )
    return (
        ("Model", (model,)),
        ("Budget", (per_session, per_day)),
        ("Memory", (keeps, rows)),
        ("Retention", (ttl, decay)),
    )


@router.get("")
async def show(request: Request, access: AccessHere, told: str = "") -> Response:
    """Show the settings to the owner: a persona, a budget and paths are not for guests."""
    _check_owner(access)
    setup = access.runtime.setup
    return sheet(
        request,
        "settings.html",
        access,
        here="settings",
        groups=_groups(access.runtime.agent),
        config=access.runtime.config,
        persona=setup.identity.persona,
        description=setup.identity.description,
        file=setup.identity.file,
        folder=setup.identity.memory,
        told="Saved. The next message uses the new settings." if told == "saved" else "",
    )


@router.post("")
async def save(access: AccessHere, identities: IdentitiesHere, fields: Fields) -> Response:
    """Write the settings that differ from those in force, then open the identity again."""
    _check_owner(access)
    file = access.runtime.setup.identity.file
    before = await asyncio.to_thread(_read, file)
    try:
        document = tomlkit.parse(before or "")
    except TOMLKitError as error:
        raise InvalidValue(f"not saved: {file} is not valid TOML: {error}") from error
    _change(document, access, fields)
    await _write(file, before, tomlkit.dumps(document), identities, access)
    return goto(f"{base(access)}/settings?told=saved")


def _check_owner(access: IdentityAccess) -> None:
    if not access.caller.is_owner:
        raise AccessDenied("only the owner may see and change settings")


def _change(document: TOMLDocument, access: IdentityAccess, fields: Mapping[str, str]) -> None:
    persona = fields.get("persona", "").strip()
    if persona != access.runtime.setup.identity.persona:
        document["persona"] = persona or DEFAULT_PERSONA
    for _, group in _groups(access.runtime.agent):
        for field in group:
            if field.name in fields and (value := field.parsed(fields[field.name])) != field.value(
                access.runtime.config
            ):
                _set(document, field.place, value)


def _set(document: Any, place: tuple[str, ...], value: Any) -> None:
    """Set a value, making the tables around it; `model = "name"` is short for a table."""
    if place == ("model", "name") and not isinstance(document.get("model"), Mapping):
        document["model"] = value
        return
    for key in place[:-1]:
        document = document.setdefault(key, tomlkit.table())
        if not isinstance(document, Mapping):
            raise InvalidValue(f"not saved: {key!r} is not a table in the file")
    document[place[-1]] = value


async def _write(file: Path, before: str | None, text: str, identities: IdentitiesHere, access: IdentityAccess) -> None:
    """Write the file if it is valid, and open the identity with it. Raises `InvalidValue` or `ConflictingChange`.

    An identity that cannot be opened with it gets its file back.
    """
    if text == (before or ""):
        return
    try:
        await asyncio.to_thread(access.runtime.setup.with_file, text)
    except ChatbotError as error:
        raise InvalidValue(f"not saved: {error}") from error
    identities.check_at_rest(access.identity)
    await asyncio.to_thread(_replace, file, before, text)
    try:
        await identities.reopen(access.identity)
    except BaseException as error:
        _replace(file, text, before)
        if isinstance(error, ChatbotError):
            raise InvalidValue(f"not saved: {error}") from error
        raise


def _read(file: Path) -> str | None:
    """Return the text of the file as it is; None where there is none. Raises `StoreError`, also for a link."""
    if not file.is_file():
        return None
    with opened(file.parent) as folder:
        try:
            return folder.read(file.name).decode()
        except UnicodeDecodeError as error:
            raise InvalidValue(f"{file} is not valid UTF-8") from error


def _replace(file: Path, before: str | None, text: str | None) -> None:
    """Write the file, or remove it. Raises `ConflictingChange` where it is not as it was before."""
    make_folder(file.parent)
    with locked(file.parent) as folder:
        if _read(file) != before:
            raise ConflictingChange(f"{file} was changed meanwhile: load the page again")
        if text is None:
            folder.remove(file.name)
        else:
            folder.replace(file.name, text.encode())

"""Settings of an identity, written to `identity.toml` without losing its comments; and the choices of a session."""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import tomlkit
from fastapi import APIRouter, Request, Response
from msgspec import Struct
from msgspec.structs import replace
from tomlkit.exceptions import TOMLKitError

from chatbot.chat.dialogue import ClientRequest
from chatbot.config import Config
from chatbot.errors import ChatbotError
from chatbot.identity import DEFAULT_PERSONA, Persona, personas
from chatbot.memory import SessionHandle
from chatbot.models.catalog import SUGGESTED, CatalogModel, usable_models
from chatbot.models.provider import check_takes_key, key_places, parsed_key, remove_key, store_key, stored_keys
from chatbot.server.dependencies import IdentitiesHere
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.page.rendering import AccessHere, Fields, PageRoute, base, came_safely, goto, render_page
from chatbot.stores.base import KeyValueStore
from chatbot.stores.errors import AccessDenied, ConflictingChange, InvalidValue
from chatbot.stores.files import locked, make_folder, opened
from chatbot.stores.records import parse_time
from chatbot.transfer.union import STATE, SyncState


async def choose(access: IdentityAccess, session: SessionHandle, fields: Mapping[str, str]) -> bool:
    """Store the choices of a form, and move the session to the project that it names; return whether anything changed.

    Only the owner may choose a model. Raises `ModelError` for one that cannot be used.
    """
    before = after = await session.choices()
    if "chosen" in fields and session.supports(KeyValueStore):
        model = _field_value(fields, "model") if access.caller.is_owner else before.model
        model = "" if model == access.runtime.model_asked_for else model
        after = replace(before, model=model, persona=_persona(access, fields), memory="memory" in fields)
    if after != before:
        await access.runtime.model_named(after.model)  # raises for one that cannot be used, before anything is changed
    project = fields.get("project", session.record.project)
    if is_moved := project != session.record.project:
        await session.move(project)
    if after != before:
        await session.choose(after)
    return is_moved or after != before


async def prepare_turn(access: IdentityAccess, session_id: str) -> ClientRequest:
    """Return the options of the next turn, and switch to its model, unless a turn is running."""
    choices = await (await access.session(session_id)).choices()
    chat, model = await access.chat(session_id), await access.runtime.model_named(choices.model)
    if chat.model is not model and not await access.turns_under_way(session_id):
        chat.use(model, access.runtime.tools(chat.session, model))
    return ClientRequest(persona=choices.persona)


_OTHER = "/other"
"""Value of a menu's last entry, never the name of a persona: the choice is in the text box below it."""


def _field_value(fields: Mapping[str, str], name: str) -> str:
    value = fields.get(name, "")
    return fields.get(f"{name}.other", "").strip() if value == _OTHER else value


def _persona(access: IdentityAccess, fields: Mapping[str, str]) -> str:
    named = fields.get("persona", "")
    known = personas().get(named) if access.caller.is_owner else None  # some are the owner's own
    if named and known is None and named != _OTHER:
        raise InvalidValue(f"no persona is called {named!r:.80}")
    if known:
        known.check()
        return known.text
    return _field_value(fields, "persona")


class Menus(Struct, frozen=True):
    """Models by provider, each with its price, and personas with their summaries."""

    models: Sequence[tuple[str, Sequence[tuple[str, str]]]] = ()
    personas: Mapping[str, Persona] = {}

    def persona_name(self, text: str) -> str:
        """Return the name of a persona by its text; empty for one without a name."""
        return next((name for name, each in self.personas.items() if text and each.text == text), "")


async def menus_for(access: IdentityAccess) -> Menus:
    """Return the models and personas that the caller may choose."""
    return await asyncio.to_thread(_menus, access) if access.caller.is_owner else Menus()


async def menu_context(access: IdentityAccess, session: SessionHandle) -> dict[str, Any]:
    """Return what the menu beside the message box shows in a session."""
    choices, menus = await session.choices(), await menus_for(access)
    return {"choices": choices, "menus": menus, "project": session.record.project}


def _menus(access: IdentityAccess) -> Menus:
    config = access.runtime.config
    aliases = [(name, f"{name} · {model}") for name, model in config.aliases.items()]
    groups = [("Aliases", aliases)] if aliases else []
    by_provider = groupby(usable_models(config), key=lambda each: each[0].provider)
    groups += [(name, [(model.name, _menu_label(model)) for model, _ in each]) for name, each in by_provider]
    return Menus(groups, personas())


def _menu_label(model: CatalogModel) -> str:
    name = model.name.partition("/")[2] or model.name
    read, written = model.input_usd_per_million, model.output_usd_per_million
    if read is None or written is None:
        return name
    return f"{name} · {f'${read:g} in, ${written:g} out' if read or written else 'free'}"


router = APIRouter(route_class=PageRoute, prefix="/i/{identity}/settings")


class SettingField(Struct, frozen=True):
    """One setting of the form: its place in the configuration, its kind (model, number, integer or yes), its texts."""

    name: str
    """Keys of the place, joined by dots; also the name in the form."""
    kind: str
    label: str
    hint: str = ""

    @property
    def place(self) -> tuple[str, ...]:
        """The tables and the key; the name of an agent may have dots."""
        table, _, rest = self.name.partition(".")
        return table, *rest.rsplit(".", 1)

    def value(self, config: Config) -> Any:
        """Return the current value."""
        found: Any = config
        for key in self.place:
            found = found[key] if isinstance(found, Mapping) else getattr(found, key)
        return found

    def parsed(self, text: str) -> Any:
        """Return the value of a text in the form. Raises `InvalidValue`."""
        if self.kind == "yes":
            return text == "yes"
        if self.kind == "model":
            return text.strip()
        try:
            return int(text or 0) if self.kind == "integer" else float(text or 0)
        except ValueError:
            raise InvalidValue(f"{self.label}: {text!r:.40} is not a number") from None


_STAYS = "For new messages; existing memories stay"
_FADES = "Share of its strength that an unused memory loses per day"


def _groups(agent: str) -> dict[str, tuple[SettingField, ...]]:
    return {
        "Model": (SettingField("model.name", "model", "Model", "Prices are US dollars per million tokens"),),
        "Budget": (
            SettingField("budget.session_usd", "number", "Maximum US dollars per session", "0: no limit"),
            SettingField("budget.day_usd", "number", "Maximum US dollars per day", "0: no limit"),
        ),
        "Memory": (
            SettingField(f"agents.{agent}.remember_exchanges", "yes", "Remember conversations", _STAYS),
            SettingField(f"agents.{agent}.recall_rows", "integer", "Maximum memories in a prompt", "0: recall nothing"),
        ),
        "Retention": (
            SettingField(
                "sessions.ttl_days", "number", "Delete a session after this many days without use", "0: never"
            ),
            SettingField("maintenance.decay_per_day", "number", _FADES, "0: memories do not fade"),
        ),
    }


_DONE = {
    "saved": "Saved. The next message uses the new settings.",
    "stored": "The key is stored. The next message uses it.",
    "removed": "The key is removed.",
}


@router.get("")
async def show(request: Request, access: AccessHere, done: str = "") -> Response:
    """Show the settings to the owner: a persona, a budget and paths are not for guests."""
    _check_owner(access)
    setup = access.runtime.setup
    file = setup.identity.file
    return render_page(
        request,
        "settings.html",
        access,
        here="settings",
        groups=_groups(access.runtime.agent).items(),
        config=access.runtime.config,
        persona=setup.identity.persona,
        seen=_digest(await asyncio.to_thread(lambda: file.read_bytes() if file.is_file() else b"")),
        menus=await menus_for(access),
        keys=await asyncio.to_thread(key_places, access.runtime.config.providers),
        stored=await asyncio.to_thread(stored_keys),
        providers=dict.fromkeys([*SUGGESTED, *access.runtime.config.providers]),
        file=file,
        folder=access.memory.home or "PostgreSQL",
        synced=await asyncio.to_thread(_sync_times, access),
        done=_DONE.get(done, ""),
    )


@router.post("")
async def save(access: AccessHere, identities: IdentitiesHere, fields: Fields) -> Response:
    """Write the settings that differ from the current ones, then open the identity again."""
    _check_owner(access)
    file = access.runtime.setup.identity.file
    before = await asyncio.to_thread(_text_in, file)
    seen = _digest((before or "").encode())
    if fields.get("seen", seen) != seen:  # the form shows outdated settings
        raise _conflict(file)
    try:
        document = tomlkit.parse(before or "")
    except TOMLKitError as error:
        raise InvalidValue(f"not saved: {file} is not valid TOML: {error}") from error
    _change(document, access, fields)
    await _write(file, before, tomlkit.dumps(document), identities, access)
    return goto(f"{base(access)}/settings?done=saved")


@router.post("/key")
async def set_key(request: Request, access: AccessHere, fields: Fields) -> Response:
    """Store or remove the key of a provider, as `chatbot keys` does. No page shows a key."""
    _check_owner(access)
    if not came_safely(request):
        raise AccessDenied("keys are accepted only over TLS or from this machine")
    provider = _field_value(fields, "provider")
    check_takes_key(provider, access.runtime.config.providers)
    if "remove" in fields:
        await asyncio.to_thread(remove_key, provider)
    else:
        await asyncio.to_thread(store_key, provider, parsed_key(fields.get("key", "")))
    return goto(f"{base(access)}/settings?done={'removed' if 'remove' in fields else 'stored'}#keys")


def _check_owner(access: IdentityAccess) -> None:
    if not access.caller.is_owner:
        raise AccessDenied("only the owner may see and change settings")


def _change(document: tomlkit.TOMLDocument, access: IdentityAccess, fields: Mapping[str, str]) -> None:
    persona = _persona(access, fields)
    if persona != access.runtime.setup.identity.persona:
        document["persona"] = persona or DEFAULT_PERSONA
    for group in _groups(access.runtime.agent).values():
        for each in group:
            value = each.parsed(_field_value(fields, each.name)) if each.name in fields else None
            if value is not None and value != each.value(access.runtime.config):
                _set(document, each.place, value)


def _set(document: Any, place: tuple[str, ...], value: Any) -> None:
    for key in place[:-1]:
        document = document.setdefault(key, tomlkit.table())
        if not isinstance(document, Mapping):
            raise InvalidValue(f"not saved: {key!r} is not a table in the file")
    document[place[-1]] = value


async def _write(file: Path, before: str | None, text: str, identities: IdentitiesHere, access: IdentityAccess) -> None:
    """Write the file if it is valid, and open the identity with it. Raises `InvalidValue` or `ConflictingChange`.

    If the identity cannot be opened with it, the former file is restored.
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


def _sync_times(access: IdentityAccess) -> list[tuple[str, datetime]]:
    """Return the places that the identity was synced with, each with the time of its last sync."""
    state = SyncState.read(access.runtime.memory.backend.document(STATE))
    return [(name, parse_time(place.at)) for name, place in state.places.items() if place.at]


def _text_in(file: Path) -> str | None:
    """Return the text of the file as it is; None if there is none. Raises `StoreError`, also for a link."""
    if not file.is_file():
        return None
    with opened(file.parent) as folder:
        try:
            return folder.read(file.name).decode()
        except UnicodeDecodeError as error:
            raise InvalidValue(f"{file} is not valid UTF-8") from error


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _conflict(file: Path) -> ConflictingChange:
    return ConflictingChange(f"not saved: {file} has changed since: reload the page")


def _replace(file: Path, before: str | None, text: str | None) -> None:
    """Write the file, or remove it. Raises `ConflictingChange` if it is no longer as `before`."""
    make_folder(file.parent)
    with locked(file.parent) as folder:
        if _text_in(file) != before:
            raise _conflict(file)
        if text is None:
            folder.remove(file.name)
        else:
            folder.replace(file.name, text.encode())

"""Settings that people change: model, persona, budget, memory and retention of one identity.

They are written to its `identity.toml`, whose comments stay. A file that would not be valid is not written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomlkit
from fastapi import APIRouter, Request, Response
from tomlkit import TOMLDocument
from tomlkit.exceptions import TOMLKitError

from chatbot.config import Config
from chatbot.errors import ChatbotError
from chatbot.identity import DEFAULT_PERSONA
from chatbot.server.dependencies import IdentitiesHere
from chatbot.server.identity_access import IdentityAccess
from chatbot.server.page.routes import AccessHere, Fields, PageRoute
from chatbot.server.page.sheets import base, goto, sheet
from chatbot.stores.errors import AccessDenied, ConflictingChange, InvalidValue
from chatbot.stores.files import locked, make_folder, opened

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

"""Settings that an untrusted configuration may set: none that names code, a place or a key.

`HARMLESS` lists what a found file may set; every other setting, also a new one, is refused until `chatbot config trust`
allows its current value. This module reads and writes only the list of trusted files.
"""

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, TypeAlias

from platformdirs import user_data_path

from chatbot.errors import NotTrusted
from chatbot.providers import provider_of
from chatbot.stores.errors import nearest_hint
from chatbot.stores.files import locked, make_folder, opened

logger = logging.getLogger(__name__)

NAME = "trusted.json"
_SHOWN = 4

SettingPath = tuple[str, ...]
"""Keys that lead to a setting, the outermost table first."""
Form = Callable[[Any], bool] | tuple[str, ...]
"""Function that returns True for a harmless value, or the plug-ins of chatbot that a list may name."""
Forms: TypeAlias = "dict[str, Form | Forms]"

_MODEL = re.compile(r"[A-Za-z0-9][\w.:@+-]*(/[A-Za-z0-9@][\w.:@+-]*)*", re.ASCII)
_BARE = re.compile(r"[\w-]+", re.ASCII)
_ELSEWHERE = re.compile(r"https?:|arn:|//|\.\.", re.IGNORECASE)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


LOCAL_MODELS = frozenset({"", "scripted", "local/smollm2-135m", "local/auto", "local/minilm"})
PROVIDERS = _names(
    "anthropic azure cerebras codestral cohere cohere_chat dashscope deepinfra deepseek fireworks_ai gemini groq "
    "jina_ai mistral moonshot nebius novita nvidia_nim ollama ollama_chat openai openrouter perplexity "
    "sambanova together_ai voyage xai zai"
)
"""Providers of LiteLLM that send requests to one fixed address, for every model name.

Others take an address, a region, a file or a script from the name, or run a model in this process.
"""
_UNTABLED = _names("31dxrj3 q841o8w qvv0xeq")
"""Bare names that LiteLLM sends to a provider, Baseten, though its table has none of them."""


def is_model(value: Any, providers: frozenset[str] = PROVIDERS) -> bool:
    """Return True for the name of an embedded model, or of one of `providers` at its usual address."""
    if isinstance(value, str) and value in LOCAL_MODELS:
        return True
    if not isinstance(value, str) or _ELSEWHERE.search(value) or not _MODEL.fullmatch(value):
        return False
    provider = provider_of(value)
    # For a bare name in no table LiteLLM finds a provider by its dots and colons, such as `us.…` for Bedrock.
    return provider in providers if provider else bool(_BARE.fullmatch(value)) and value not in _UNTABLED


def _is_inside(value: Any) -> bool:
    """Return True for a folder below the file's own, by its name; `Setup` checks links."""
    if not isinstance(value, str) or value.startswith("~"):
        return False
    return all(not path.anchor and ".." not in path.parts for path in (PurePosixPath(value), PureWindowsPath(value)))


def is_loopback(value: Any) -> bool:
    """Return True for the name or the address of a host that only this machine can reach."""
    try:
        return value == "localhost" or ip_address(str(value)).is_loopback
    except ValueError:
        return False


def _all(names: str) -> Forms:
    return dict.fromkeys(_names(names), lambda _: True)


_HOOK = "enabled priority timeout_s"

HARMLESS: Forms = {
    **_all("persona description clearance sensitivity identity"),
    "identities": _is_inside,
    "model": {
        "name": is_model,
        **_all("temperature top_p seed max_output_tokens context_window timeout_s retries script"),
    },
    "agents": {
        "*": {
            "memory": ("basic_session", "observations", "in_memory"),
            "tools": ("memory",),
            **_all("window_entries remember_exchanges recall_rows recall_tokens index_rows tool_steps"),
            **_all("title_by_model project"),
        }
    },
    "memory": {
        "basic_session": _all("kv_cap transcript_cap"),
        "observations": _all("max_observations ttl_days"),
        "in_memory": _all("kv_cap transcript_cap max_observations ttl_days"),
    },
    "hooks": {
        **dict.fromkeys(_names("inject exchange capture consolidation compression extraction episode"), _all(_HOOK)),
        "memorability": _all(f"{_HOOK} threshold"),
        "boundaries": _all(f"{_HOOK} window threshold"),
        "temporal": _all(f"{_HOOK} places margin"),
        "summarize": _all(f"{_HOOK} every least"),
    },
    "embedding": {"model": is_model, **_all("dimensions batch weight")},
    "extraction": {
        "model": is_model,
        **_all("enabled budget_usd max_output_tokens timeout_s reconcile supersede summaries"),
    },
    "standing": _all("name question pinned enabled"),
    "storage": {},
    "sessions": _all("ttl_days ttl_keeps_memory"),
    "maintenance": {
        **_all("consolidate_every_hours compress_every_hours decay_per_day compression_min_age_days similarity"),
        **_all("summarize_after_days max_per_session erase_after_days rows_per_run seconds_per_run"),
        "rules": _all("types agent namespace archive_after_days delete_after_days max_rows"),
    },
    "budget": _all("session_usd day_usd session_tokens day_tokens"),
    "terminal": _all("markdown shown_on_resume show_usage vi"),
    "mcp": {"servers": {}},
    "files": {},
    "providers": {},
    "aliases": {"*": is_model},
    "server": {
        "host": is_loopback,
        **_all("port shutdown_s body_kb attachments_kb request_timeout_s rate_per_minute connections"),
    },
    "sync": {},
    "telemetry": _all("prometheus service sample interval_s timeout_s"),
}
"""Values that a found file may set, by setting; `*` is any name. Everything else needs trust, even an empty value.

Not here: prices, as a wrong one makes budgets worthless; keys, addresses, headers and foreign plug-ins.
"""


def needing_trust(table: Mapping[str, Any], *, providers: frozenset[str] = PROVIDERS) -> dict[str, Any]:
    """Return the settings that need trust, by dotted name; models of `providers` may be named. Pure."""
    return {name: value for name, place, value in leaves(table) if not _is_harmless(place, value, providers)}


def is_trusted(path: Path, table: Mapping[str, Any]) -> bool:
    """Return True if the file sets what needs trust, and the user trusts it with its current settings."""
    found = needing_trust(table)
    return bool(found) and _known().get(_place(path)) == _digest(found)


def check(path: Path, table: Mapping[str, Any], remedy: str, *, providers: frozenset[str] = PROVIDERS) -> None:
    """Raise `NotTrusted`, ending with `remedy`, for settings that need trust."""
    found = needing_trust(table, providers=providers)
    if not found or is_trusted(path, table):
        return
    names = list(found)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    hint = next(filter(None, (_hint(place, value) for name, place, value in leaves(table) if name in found)), ";")
    raise NotTrusted(f"{path} is not trusted: it sets {', '.join(names[:_SHOWN])}{more}{hint} {remedy}", at=path)


def trust(path: Path, table: Mapping[str, Any]) -> dict[str, Any]:
    """Trust the current settings of the file, and no later ones; return them."""
    found = needing_trust(table)
    folder = user_data_path("chatbot")
    make_folder(folder)
    with locked(folder) as place:
        known = _known()
        if not known and place.stamp(NAME) is not None:
            aside = place.set_aside(NAME)
            logger.warning("%s was damaged and is kept as %s: trust other files again", folder / NAME, aside)
        known[_place(path)] = _digest(found)
        place.replace(NAME, (json.dumps(known, indent=2, ensure_ascii=False) + "\n").encode())
    return found


def _known() -> dict[str, str]:
    """Return the digest of the trusted settings of each file. A damaged list trusts nothing."""
    try:
        with opened(user_data_path("chatbot")) as folder:
            known = json.loads(folder.read(NAME))
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def _digest(found: Mapping[str, Any]) -> str:
    return sha256(json.dumps(found, sort_keys=True, default=str).encode()).hexdigest()


def _place(path: Path) -> str:
    """Return the path of the file without following a link: names in it are relative to its folder."""
    return str(path.parent.resolve() / path.name)


def leaves(value: Any, name: str = "", place: SettingPath = ()) -> Iterator[tuple[str, SettingPath, Any]]:
    """Yield every setting: its unique name, its place, and its value. Tables of a list share its place."""
    if isinstance(value, Mapping) and (value or not place):
        for key, each in value.items():
            shown = key if _BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False)
            yield from leaves(each, f"{name}.{shown}" if place else shown, (*place, key))
    elif isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        for number, each in enumerate(value):
            yield from leaves(each, f"{name}[{number}]", place)
    else:
        yield name, place, value


def _is_harmless(place: SettingPath, value: Any, providers: frozenset[str]) -> bool:
    form = _form(place)
    if isinstance(form, dict):
        return bool(value == {})
    if form is is_model:
        return is_model(value, providers)
    if isinstance(form, tuple):
        return isinstance(value, list) and all(each in form for each in value)
    return form is not None and form(value)


def _hint(place: SettingPath, value: Any) -> str:
    """Return a hint at a similar known name if a setting or a plug-in has an unknown one; empty if there is none."""
    if isinstance(known := _form(place), tuple):
        unknown = (each for each in value if each not in known) if isinstance(value, list) else ()
        return next(filter(None, (nearest_hint(str(each), known) for each in unknown)), "")
    for depth, part in enumerate(place):
        known = _form(place[:depth])
        if isinstance(known, dict) and part not in known and "*" not in known:
            return nearest_hint(part, known)
    return ""


def _form(place: SettingPath) -> "Form | Forms | None":
    form: Form | Forms | None = HARMLESS
    for part in place:
        form = form.get(part, form.get("*")) if isinstance(form, dict) else None
    return form

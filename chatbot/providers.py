"""Names of model providers, from the files of LiteLLM, whose import takes seconds; and the provider of a model."""

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

LOCAL = "local"
SCRIPTED = "scripted"
OURS = frozenset({LOCAL, SCRIPTED})
"""Providers that run in this process: they take no key, and nothing leaves the machine."""

_ENUM = re.compile(r"^class LlmProviders\(.*?\n(?P<members>.*?)^\S", re.MULTILINE | re.DOTALL)
_MEMBER = re.compile(r'^    [A-Z0-9_]+ = "([^"]+)"', re.MULTILINE)


@cache
def known_providers() -> frozenset[str]:
    """Return the names of all providers: `local`, `scripted` and, if it is installed, LiteLLM's."""
    enum = _ENUM.search(_read("types/utils.py"))
    return OURS | {*_MEMBER.findall(enum["members"] if enum else ""), *openai_like()}


def provider_of(model: str) -> str:
    """Return the provider that a model's name begins with, or else that of LiteLLM's table; empty if unknown."""
    name, slash, _ = model.partition("/")
    if slash or model in OURS:
        return name
    known = model_table().get(model)
    found = str(known.get("litellm_provider") or "") if isinstance(known, dict) else ""
    return "vertex_ai" if found.startswith("vertex_ai-") else found


@cache
def openai_like() -> Mapping[str, Mapping[str, Any]]:
    """Return LiteLLM's providers with OpenAI's interface, each with its address and the variable of its key."""
    return _read_json("llms/openai_like/providers.json")


@cache
def model_table() -> Mapping[str, Any]:
    """Return LiteLLM's table of models: prices, windows and abilities by name."""
    return _read_json("model_prices_and_context_window_backup.json")


def _read_json(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_read(name) or "{}")
    return found


def _read(name: str) -> str:
    """Return the text of a file of LiteLLM's package; empty if there is none."""
    package = find_spec("litellm")
    if package is None or package.origin is None:
        return ""
    try:
        return (Path(package.origin).parent / name).read_text("utf-8")
    except OSError:
        return ""

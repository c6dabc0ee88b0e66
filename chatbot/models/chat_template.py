"""Chat templates of local models, rendered so that no message can forge what the template says.

A template turns messages into one text in which special tokens mark who speaks. Rendered naively, a user who writes
such a marker would speak as the system. So the template is rendered with placeholders in place of the contents, and
cut there: its own parts may hold special tokens, the contents are plain text.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from chatbot.errors import RequestRefused

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""For a model file without a template of its own."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a rendered prompt; special tokens are recognised only where it came from the template."""

    text: str
    is_template: bool


class ChatTemplate:
    """One model's template. `bos` and `eos` are the texts of its special tokens."""

    def __init__(self, source: str | None, *, bos: str = "", eos: str = "") -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _tojson
        environment.globals |= {"raise_exception": _raise, "strftime_now": _strftime_now}
        self._tokens = {"bos_token": bos, "eos_token": eos}
        try:
            self._template = environment.from_string(source or CHATML)
        except TemplateError as error:
            raise RequestRefused(f"the model's chat template cannot be read: {error}") from error

    def render(self, messages: Sequence[dict[str, Any]]) -> list[Part]:
        """The prompt in parts, up to where the assistant's reply begins. Raises `RequestRefused`."""
        contents = [_text_of(message) for message in messages]
        nonce = secrets.token_hex(8)
        marked = [
            {"role": _role_of(message), "content": f"[[{nonce}:{number}]]"} for number, message in enumerate(messages)
        ]
        pieces = re.split(rf"\[\[{nonce}:(\d+)\]\]", self._render(marked))
        parts = [
            Part(contents[int(piece)] if at % 2 else piece, is_template=at % 2 == 0) for at, piece in enumerate(pieces)
        ]
        return [part for part in parts if part.text]

    def _render(self, messages: list[dict[str, str]]) -> str:
        try:
            return self._fill(messages)
        except TemplateError as error:
            if messages and messages[0]["role"] == "system":
                return self._render(_without_system(messages))
            raise RequestRefused(f"the model's chat template refuses this conversation: {error}") from error

    def _fill(self, messages: list[dict[str, str]]) -> str:
        return self._template.render(messages=messages, tools=None, add_generation_prompt=True, **self._tokens)


def _without_system(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    """For templates that know no system role: its text goes in front of the first message of the user."""
    system, *rest = messages
    if not rest:
        return [{"role": "user", "content": system["content"]}]
    return [{"role": rest[0]["role"], "content": f"{system['content']}\n\n{rest[0]['content']}"}, *rest[1:]]


def _text_of(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if message.get("tool_calls"):
        called = [call["function"] for call in message["tool_calls"]]
        return "\n".join([str(content), *(f"{call['name']}({call['arguments']})" for call in called)]).strip()
    return str(content)


def _role_of(message: dict[str, Any]) -> str:
    """Small models know three roles; what a tool answered comes from outside, like what the user says."""
    role = str(message.get("role", "user"))
    return role if role in {"system", "assistant"} else "user"


def _tojson(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)

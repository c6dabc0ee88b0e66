"""Chat templates of local models, rendered so that no message can forge a role.

A template turns messages into one text in which special tokens mark the speaker. Rendered naively, a user could write
such a marker and speak as the system. Therefore the template is rendered with placeholders instead of the contents and
split there: its own parts may contain special tokens, the contents are always plain text.
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
"""Template for model files without one."""

Entry = dict[str, str]


@dataclass(frozen=True, slots=True)
class PromptPiece:
    """A piece of a rendered prompt; special tokens are recognised only where it came from the template."""

    text: str
    is_template: bool


class ChatTemplate:
    """One model's template. `bos` and `eos` are the texts of its special tokens."""

    def __init__(self, source: str | None, *, bos: str = "", eos: str = "") -> None:
        self.source = source or CHATML
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _tojson
        environment.globals |= {"raise_exception": _raise, "strftime_now": _strftime_now}
        self._tokens = {"bos_token": bos, "eos_token": eos}
        try:
            self._template = environment.from_string(self.source)
        except TemplateError as error:
            raise RequestRefused(f"the model's chat template cannot be read: {error}") from error

    def render(self, messages: Sequence[dict[str, Any]]) -> list[PromptPiece]:
        """The prompt in parts, up to where the assistant's reply begins. Raises `RequestRefused`.

        A template that knows no system role, or wants user and assistant in strict turns, gets them merged.
        """
        contents = [_text_of(message) for message in messages]
        # Digits only, so that a template may change the case or trim, and still leave the placeholder alone.
        nonce = secrets.randbits(64)
        marked = [
            {"role": _role_of(message), "content": f"[[{nonce}:{number}]]"} for number, message in enumerate(messages)
        ]
        pieces = re.split(rf"\[\[{nonce}:(\d+)\]\]", self._render(marked))
        parts = [
            PromptPiece(contents[int(piece)] if at % 2 else piece, is_template=at % 2 == 0)
            for at, piece in enumerate(pieces)
        ]
        return [part for part in parts if part.text]

    def _render(self, messages: list[Entry]) -> str:
        refusal = ""
        merged = _without_system(messages)
        for attempt in (messages, merged, _in_turns(merged)):
            try:
                text = self._template.render(messages=attempt, tools=None, add_generation_prompt=True, **self._tokens)
            except Exception as error:  # noqa: BLE001 - a template is foreign code: it may fail in any way
                refusal = str(error) or type(error).__name__
                continue
            if all(message["content"] in text for message in messages):
                return text
            refusal = "it leaves out a message"
        raise RequestRefused(f"the model's chat template refuses this conversation: {refusal}")


def _without_system(messages: list[Entry]) -> list[Entry]:
    """The system's text in front of the first message that follows it."""
    if not messages or messages[0]["role"] != "system":
        return messages
    system, *rest = messages
    if not rest:
        return [{"role": "user", "content": system["content"]}]
    return [{"role": rest[0]["role"], "content": f"{system['content']}\n\n{rest[0]['content']}"}, *rest[1:]]


def _in_turns(messages: list[Entry]) -> list[Entry]:
    """Neighbours of the same role as one message."""
    turns: list[Entry] = []
    for message in messages:
        if turns and turns[-1]["role"] == message["role"]:
            turns[-1] = {"role": message["role"], "content": f"{turns[-1]['content']}\n\n{message['content']}"}
        else:
            turns.append(message)
    return turns


def _text_of(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if message.get("tool_calls"):
        called = [call["function"] for call in message["tool_calls"]]
        return "\n".join([str(content), *(f"{call['name']}({call['arguments']})" for call in called)]).strip()
    return str(content)


def _role_of(message: dict[str, Any]) -> str:
    """Map roles to the three that small models know; tool results come from outside, like user messages."""
    role = str(message.get("role", "user"))
    return role if role in {"system", "assistant"} else "user"


def _tojson(value: Any, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, **{"ensure_ascii": False, "indent": indent, **options})


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)

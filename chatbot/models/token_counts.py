"""Cautious estimate of the tokens of a prompt, for models without a tokenizer here.

It is fitted to cl100k, one of the less efficient common tokenizers, so that prose in any language, code, hashes and
emoji are rather overestimated. A word counts one token per four letters, at least one; other strings (`a3f5e8c9…`)
count two per three characters; scripts and symbols have a weight per character. A message adds 4 for role and
separators.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from functools import lru_cache

from chatbot.messages import Message, ToolSpec

_MESSAGE_TOKENS = 4
_IMAGE_TOKENS = 1_100
"""About as many as OpenAI counts for a large image at high detail, and others for a whole one."""
_LONGEST_KEPT = 4_000
"""Characters up to which it is worth remembering how many tokens a text takes."""
_WEIGHTS = {
    "dense": 0.75,
    "capitals": 0.42,
    "word": 0.25,
    "digits": 0.4,
    "space": 0.1,
    "mark": 0.6,
    "alphabet": 0.85,
    "hangul": 1.6,
    "ideograph": 1.2,
    "symbol": 2.5,
    "other": 1.4,
}
"""Tokens for a character of each kind of text."""
_KINDS = re.compile(
    r"(?P<dense>(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{8,})|(?P<capitals>[A-Z]{2,}(?![a-z]))|(?P<word>[A-Za-z]+)"
    r"|(?P<digits>[0-9]+)|(?P<space> +)|(?P<mark>[\x00-\x7f])|(?P<alphabet>[\x80-\u08ff]+)|(?P<hangul>[\uac00-\ud7a3]+)"
    r"|(?P<ideograph>[\u3000-\u9fff\uff00-\uffef]+)|(?P<symbol>[\u2010-\u2bff\ufe00-\ufe0f\U0001f000-\U0001ffff]+)|(?P<other>.)",
    re.DOTALL,
)


def estimate_text(text: str) -> int:
    """The tokens of a text, at a guess that is rather too high than too low."""
    return _remembered_long(text) if len(text) > _LONGEST_KEPT else _remembered(text)


@lru_cache(maxsize=2048)
def _remembered(text: str) -> int:
    """Cached estimate for text that the next prompt contains again."""
    return _estimated(text)


@lru_cache(maxsize=8)
def _remembered_long(text: str) -> int:
    """Cached estimate for long text, such as an attached document, which each prompt counts several times."""
    return _estimated(text)


def _estimated(text: str) -> int:
    total = 0.0
    for piece in _KINDS.finditer(text):
        kind = piece.lastgroup or "other"
        tokens = _WEIGHTS[kind] * (piece.end() - piece.start())
        total += max(1.0, tokens) if kind == "word" else tokens
    return math.ceil(total)


def estimate(messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:
    """The tokens of a prompt, tool schemas included."""
    total = sum(
        _MESSAGE_TOKENS + estimate_text(_all_text(message)) + _IMAGE_TOKENS * len(message.images)
        for message in messages
    )
    return total + sum(map(_estimated_tool, tools))


@lru_cache(maxsize=512)
def _estimated_tool(tool: ToolSpec) -> int:
    """Every prompt of a conversation holds the same tools."""
    return _estimated(json.dumps(tool.as_openai()))


def _all_text(message: Message) -> str:
    return message.content + "".join(f" {call.id} {call.name} {call.arguments}" for call in message.tool_calls)

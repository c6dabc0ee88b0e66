"""How many tokens a prompt takes, where the model's tokenizer is not at hand: a cautious estimate, in microseconds.

Tokenizers in use need about a token for four ASCII letters of prose, for two to three of code, and for about one
character of CJK, emoji or other scripts. So: ASCII letters and digits count 0.3, other ASCII 0.5 (a space joins the word
behind it, 0.1), everything else 1.1; a message adds 4 for its role and separators.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence

from chatbot.messages import Message, ToolSpec

_WORD = re.compile(r"[A-Za-z0-9]")
_SPACE = re.compile(r"[ ]")
_ASCII = re.compile(r"[\x00-\x7f]")
_MESSAGE_TOKENS = 4


def estimate_text(text: str) -> int:
    """The tokens of a text, at a guess that is rather too high than too low."""
    words, spaces, ascii_ = (len(pattern.findall(text)) for pattern in (_WORD, _SPACE, _ASCII))
    marks = ascii_ - words - spaces
    return math.ceil(words * 0.3 + spaces * 0.1 + marks * 0.5 + (len(text) - ascii_) * 1.1)


def estimate(messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:
    """The tokens of a prompt, tool schemas included."""
    total = sum(_MESSAGE_TOKENS + estimate_text(_all_text(message)) for message in messages)
    return total + sum(estimate_text(json.dumps(tool.as_openai())) for tool in tools)


def _all_text(message: Message) -> str:
    return message.content + "".join(f" {call.id} {call.name} {call.arguments}" for call in message.tool_calls)

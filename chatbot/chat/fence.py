"""Untrusted text between two marks in a prompt.

Each line of the text follows a bar, or all of it is in one line of the fence. Angle brackets are escaped, and the text
does not contain the nonce of the marks. So no text can close the fence, open another, or seem to be outside of it.
Tokens of chat templates and marks like ours are broken in all of it, and in answers of tools: a tokenizer could take
those for roles, and a model these for a fence.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from chatbot.messages import FENCE

FILE = "attached-file"
BREAK = "·"
"""Stands in, or in the place of, a token of a chat template."""
TOKEN = re.compile(
    r"<\s*+[|｜]\s*+[\w▁/-][\w ▁/-]{0,39}+\s*+[|｜]\s*+>(?:\s*+(?:system|assistant|user|tool|developer)\b)?"
    r"|\[\s*+\|\s*+[\w-][\w -]{0,39}+\s*+\|\s*+\]"
    r"|\[/?\s*+(?:INST|SYS|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT)\s*+\]|<</?SYS>>"
    r"|</?(?:start|end)_of_turn>|<[be]os>|</?s>",
    re.IGNORECASE,
)
"""A token of a chat template: ChatML, Llama, Mistral, Gemma, DeepSeek. Matching takes linear time."""
_MARK = re.compile(rf"{TOKEN.pattern}|</?\s*+(?:{FENCE}|{FILE})\b", re.IGNORECASE)


def without_tokens(text: str) -> str:
    """Return the text with a dot in each token of a chat template and each mark of ours: they can still be read."""
    return _MARK.sub(lambda found: f"{found[0][0]}{BREAK}{found[0][1:]}", text)


_ANGLES = "＜＞﹤﹥˂˃ᐸᐳ‹›❮❯⟨⟩〈〉"
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"} | {sign: f"&#x{ord(sign):x};" for sign in _ANGLES})
"""Escapes as in HTML, with the signs that a model may read as angle brackets."""


def barred(label: str, text: str) -> str:
    """Return the text with a bar before each line, and the label before the first."""
    lines = text.translate(_ESCAPED).splitlines()
    return "\n".join(f"  {label} | {line}" if not at else f"  | {line}".rstrip() for at, line in enumerate(lines))


def in_one_line(text: str) -> str:
    """Return the text without line breaks, so that it begins no line of its own."""
    return " ".join(part for line in text.translate(_ESCAPED).splitlines() if (part := line.strip()))


def fenced(name: str, entries: Sequence[str], nonce: str) -> str:
    """Return entries of `barred` or `in_one_line` between marks; with another nonce if an entry contains this one."""
    body = without_tokens("\n".join(entries))
    while nonce.casefold() in body.casefold():
        nonce = hashlib.sha256(nonce.encode()).hexdigest()[: len(nonce)]
    mark = f'{name} nonce="{nonce}"'
    return f"<{mark}>\n{body}\n</{mark}>"

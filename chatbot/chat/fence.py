"""Text that is not to be trusted, between two marks in a prompt. Only the fence begins lines.

Every line of the text stands behind a bar, or all of it in one line of the fence's, with its angle brackets escaped,
and the nonce of the marks occurs in none of it: so no text can close the fence, open another, or speak from outside.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

_ANGLES = "＜＞﹤﹥˂˃ᐸᐳ‹›❮❯⟨⟩〈〉"
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"} | {sign: f"&#x{ord(sign):x};" for sign in _ANGLES})
"""Escapes as in HTML, with the signs that a model may read as angle brackets."""


def barred(label: str, text: str) -> str:
    """Return the text with each line behind a bar, the first one behind its label too."""
    lines = text.translate(_ESCAPED).splitlines()
    return "\n".join(f"  {label} | {line}" if not at else f"  | {line}".rstrip() for at, line in enumerate(lines))


def in_one_line(text: str) -> str:
    """Return the text without line breaks, so that it begins no line of its own."""
    return " ".join(part for line in text.translate(_ESCAPED).splitlines() if (part := line.strip()))


def fenced(name: str, entries: Sequence[str], nonce: str) -> str:
    """Return entries of `barred` or `in_one_line` between marks; with another nonce where an entry holds this one."""
    body = "\n".join(entries)
    while nonce.casefold() in body.casefold():
        nonce = hashlib.sha256(nonce.encode()).hexdigest()[: len(nonce)]
    mark = f'{name} nonce="{nonce}"'
    return f"<{mark}>\n{body}\n</{mark}>"

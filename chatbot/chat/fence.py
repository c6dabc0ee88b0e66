"""Untrusted text between two marks in a prompt.

Each line of the text follows a bar, or all of it is in one line of the fence. Angle brackets are escaped, and the text
does not contain the nonce of the marks. So no text can close the fence, open another, or seem to be outside of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

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
    body = "\n".join(entries)
    while nonce.casefold() in body.casefold():
        nonce = hashlib.sha256(nonce.encode()).hexdigest()[: len(nonce)]
    mark = f'{name} nonce="{nonce}"'
    return f"<{mark}>\n{body}\n</{mark}>"

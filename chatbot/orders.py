"""Forms of text that act on a model whatever they say: forged structure, and the plainest orders as data.

Structure is free of language: calls of tools, frames of prompts, links that carry data away. `orders.tsv` holds the
most frequent orders, word for word, a line each with its language. Both are compared with every reading of a text that
`chatbot.disguises` gives. Nothing else is judged by patterns: that is what the head `orders_a_model` is for, and what
passes both is still data between the fences of a memory block.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path

from chatbot.disguises import plain, unmasked

ORDER = "order"
"""The name of a form in `orders.tsv`."""
_SEAM = 120
"""Characters on either side within which an order may be split in the middle of a word."""
_LONGEST_KEPT = 4_000
"""Length in characters up to which the outcome for a row is cached."""
_WORD = re.compile(r"[^\W_]+")
_UNSPACED = frozenset({"zh", "ja", "ko"})
"""Languages whose words stand side by side, or grow at their ends: a form may stand inside of a word."""

_DATA = r"(?:data|secrets?|history|conversation|passwords?|prompt|messages|context)"
_PLACEHOLDER = (
    r"(?:\{|%7b|<[a-z]|\[[a-z]|\$[a-z{]|\.\.\.|=(?=[\s)\"'])"
    rf"|[=/](?:(?:the|your|user|all|chat)[_-]?)?{_DATA}(?![a-z])|=(?-i:[A-Z]{{2,20}}_[A-Z_]{{2,30}}))"
)
_NAME = r"\"(?:name|tool|function)\""
_URL = r"<?(?:https?:)?//"
_ROLE = r"(?:system|developer|admin)"
_PART = r"(?:prompt|message|instructions?)"

STRUCTURE = {
    "tool-forgery": (
        r"\"(?:tool_calls?|function_call|tool_use)\"\s{0,20}:",
        rf"{_NAME}\s{{0,20}}:\s{{0,20}}\"[^\"]{{1,80}}\"\s{{0,20}},\s{{0,20}}\"(?:arguments|parameters|input|args)\"\s{{0,20}}:",
        rf"\"(?:arguments|parameters)\"\s{{0,20}}:\s{{0,20}}\{{[^{{}}]{{0,200}}\}}\s{{0,20}},\s{{0,20}}{_NAME}",
        r"<\s{0,9}/?\s{0,9}(?:\w{1,20}:)?(?:tool_calls?|function_calls?|tool_use|invoke|tool_response|tool_result)\b",
        r"<\s{0,9}function\s{0,9}=",
        r"<\|python_tag\|>|\[/?TOOL_CALLS\]|(?<![\w.])functions\.\w{1,60}\s{0,3}\(\s{0,3}\{",
        r"^\s{0,20}action\s{0,9}:[^\n]{1,80}\n\s{0,20}action[ _]input\s{0,9}:",
    ),
    "forged-frame": (
        rf"[-=#*<\[({{_~]\s{{0,9}}(?:begin|start|end|new|end of)[ _](?:of[ _])?{_ROLE}[ _]{_PART}",
        r"(?-i:(?:BEGIN|START|END)(?: OF)?(?: NEW)? (?:SYSTEM|DEVELOPER|ADMIN) (?:PROMPT|MESSAGE|INSTRUCTIONS?))",
        r"(?-i:END OF (?:DATA|MEMORY|MEMORIES|CONTEXT|DOCUMENT|INPUT|USER INPUT))",
        r"^\s{0,9}<\s{0,9}(?:system|instructions?|developer|admin|system[_-]prompt)\s{0,9}>",
        r"<(system|instructions?|developer|admin|system[_-]prompt)>[^<]{1,400}</\1>",
        rf"\[\s{{0,9}}{_ROLE}[ _-](?:override|message|prompt|notice|update|command)[^\]\n]{{0,40}}\]",
        rf"[-=#*~%]{{2,40}}\s{{0,9}}{_ROLE}[ _](?:override|message|prompt|notice)",
        r"\"role\"\s{0,9}:\s{0,9}\"(?:system|developer|assistant|tool)\"\s{0,9},\s{0,9}\"content\"",
        r"<!--\s{0,9}(?:assistant|ai|system|model|llm|bot)(?![\w])",
        r"^\s{0,9}#{1,6}\s{0,9}instructions?\s{0,3}:?[^\n]{0,200}\n(?:[^\n]{0,400}\n){0,10}?\s{0,9}#{1,6}\s{0,9}response",
    ),
    "exfiltration-link": (
        rf"!\[[^\]\n]{{0,200}}\]\(\s{{0,9}}{_URL}[^)\s?&#]{{1,500}}[?&#][^)\n]{{0,300}}?{_PLACEHOLDER}",
        rf"\[[^\]\n]{{0,200}}\]\(\s{{0,9}}{_URL}[^)\s]{{1,500}}?(?:\{{|%7b|<[a-z]|\.\.\.|=\[)",
        rf"<img\b[^>]{{0,200}}?src\s{{0,9}}=\s{{0,9}}[\"']?{_URL}[^>\s?&]{{1,500}}[?&][^>\s]{{0,200}}?{_PLACEHOLDER}",
        rf"^\s{{0,20}}\[[^\]\n]{{1,80}}\]:\s{{0,9}}{_URL}[^\s]{{1,500}}?(?:\{{|%7b|\.\.\.)",
        r"\]\(\s{0,9}(?:javascript|data|vbscript):",
    ),
}
"""Patterns by their names, in which `…` is `...`; the first that matches names the reason."""


def form_in(texts: Iterable[str]) -> str | None:
    """Return the name of the first form that the texts of one row hold, each alone or one after another; None for none.

    Takes time in proportion to their length.
    """
    parts = tuple(filter(None, texts))
    return _form_in(parts) if sum(map(len, parts)) > _LONGEST_KEPT else _remembered(parts)


def _form_in(parts: tuple[str, ...]) -> str | None:
    for joined in dict.fromkeys(("\n".join(parts), "".join(map(_ends, parts)))):
        for reading in unmasked(joined):
            for name, pattern in _structure():
                if pattern.search(reading):
                    return name
            said = f" {' '.join(_WORD.findall(reading.casefold()))} "
            if any(order in said for order in plain_orders()):
                return ORDER
    return None


_remembered = lru_cache(maxsize=1024)(_form_in)
"""The same for what is likely to be recalled again."""


def _ends(part: str) -> str:
    """The part, without the middle of a long one: an order may be split where one part is followed by another."""
    return part if len(part) <= 2 * _SEAM else f"{part[:_SEAM]}\n{part[-_SEAM:]}"


@cache
def _structure() -> tuple[tuple[str, re.Pattern[str]], ...]:
    every = ((name, plain("|".join(patterns))) for name, patterns in STRUCTURE.items())
    return tuple((name, re.compile(pattern, re.IGNORECASE | re.MULTILINE)) for name, pattern in every)


@cache
def plain_orders() -> tuple[str, ...]:
    """Return the orders of `orders.tsv` as they stand in a text of words with a space around each."""
    lines = Path(__file__).with_suffix(".tsv").read_text(encoding="utf-8").splitlines()
    found = (line.split("\t") for line in lines)
    return tuple(
        plain(order).casefold() if language in _UNSPACED else f" {plain(order).casefold()} "
        for language, order in found
    )

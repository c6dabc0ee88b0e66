"""Detection of prompt injection: texts that give a model orders, in plain and in disguised form.

`without_invisible` is for display. `readings` is for judging: it yields the readings of a text in which an order could
be recognised; they are never shown. `STRUCTURE` has what is the same in every language: tool calls, prompt frames,
links that carry data away. `prompt_injection.tsv` has the most frequent orders, word for word, each with its language.
Texts in which neither is found are judged by the head `orders_a_model`; what passes that too is still fenced data.
"""

import base64
import codecs
import html
import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from urllib.parse import unquote

from chatbot.messages import ends_of

_MOST_RUNS = 16
_LONGEST_RUN = 8_192
_LEAST_PRINTABLE = 0.9

_KEPT = frozenset("\n\t\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u08e2\U000110bd\U000110cd")
"""Format characters that can be seen, and the white space that a text may hold."""
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
"""Characters that count as letters, marks or symbols, and show nothing."""
_JOINED = "\u0600-\u0eff\u1000-\u109f\u1780-\u18af"
_PICTURES = "\u00a9\u00ae\u203c-\u3299\ufe0f\U0001f000-\U0001faff"
_WANTED = (
    rf"(?<=[{_JOINED}])[\u200c\u200d](?=[{_JOINED}])|(?<=[{_PICTURES}])\u200d(?=[{_PICTURES}])"
    rf"|(?<=[#*0-9{_PICTURES}])\ufe0f(?!\ufe0f)"
)
"""Joiners inside the words that need them and inside emoji, and the selectors that make a sign an emoji."""

_LOOK_ALIKES = (
    ("аеорсухіјѕһԁԛԝкмнтвгзӏь", "aeopcyxijshdqwkmhtbr3lb"),
    ("АВЕКМНОРСТХУІЈЅԌԚԜ", "ABEKMHOPCTXYIJSGQW"),
    ("αεικνορτυχηγωβ", "aeikvoptuxnywb"),
    ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ABEZHIKMNOPTYX"),
    ("ոսցօհզ", "nugohq"),
    ("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘǫʀꜱᴛᴜᴠᴡʏᴢ", "abcdefghijklmnopqrstuvwyz"),
    ("ɑɡıȷłøđħŧɩʋɐəɔ", "agijlodhtivaec"),
    ("‘’‛ʼʹ′“”„″‐‑‒–—−⁄∕∣ǀ∶։", "''''''\"\"\"\"------//||::"),
)
"""Signs of other scripts with the letters they are read as: Cyrillic, Greek, Armenian, Latin, punctuation."""
_CONFUSABLES = {ord(sign): plain for signs, plains in _LOOK_ALIKES for sign, plain in zip(signs, plains, strict=True)}
_SQUARED = {
    first + at: chr(97 + at) for first in (0x1F130, 0x1F150, 0x1F170, 0x1F1E6, 0xE0041, 0xE0061) for at in range(26)
}
"""Letters in squares and circles, those of flags, and tag characters, which are invisible but a model may read."""
_TAGS = _SQUARED | {0xE0000 + code: chr(code) for code in range(32, 65)}
_CONTROL = r"[\x00-\x08\x0b-\x1f\x7f]"
_LEET = str.maketrans("0134578$@!|", "oieastbsaii")
_LEET_WORD = r"(?i)[a-z@$!|][0134578@$!|]|[0134578@$!|][a-z]"
_ELEMENT = r"(?i)</?[a-z][^<>\n]{0,200}>"
_INSIDE = r"(?<=[^\W_])[*~`]{1,3}(?=[^\W_])"
"""Marks of emphasis inside words."""
_ROT13 = r"(?i)rot ?-?13"
_SPELLED = r"(?<![^\W_])(?:[^\W\d_][ .\-_*·]){3,}[^\W\d_](?![^\W_])"
_SPELLED_WORD = r"(?<![^\W_])[^\W\d_]([ .\-_*·])[^\W\d_](?:\1[^\W\d_])*(?![^\W_])"
_GAP = r"[\W_]{20,}"
_RUN = r"[A-Za-z0-9+/_-]{16,}={0,2}"
_HEX = r"(?:[0-9a-fA-F]{2}[ :]?){12,4096}"
_ESCAPE = r"\\u\{?([0-9a-fA-F]{4})\}?|\\x([0-9a-fA-F]{2})"


def without_invisible(text: str) -> str:
    """Return `text` without invisible characters: zero-width, direction, tag and filler ones, hidden selectors."""
    if text.isascii() and not re.search(_CONTROL, text):
        return text
    wanted = {found.start() for found in re.finditer(_WANTED, text)}
    return "".join(char for at, char in enumerate(text) if at in wanted or not is_invisible(char))


def is_invisible(char: str) -> bool:
    """Return whether `char` is invisible on its own."""
    if char in _BLANK or "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef":
        return True
    return char not in _KEPT and unicodedata.category(char) in {"Cf", "Cc", "Cs"}


def skeleton(text: str) -> str:
    """Return `text` in the plainest letters that look like it: without width, accents, or letters of other scripts."""
    return text if text.isascii() else plain(text).translate(_CONFUSABLES).translate(_SQUARED)


def plain(text: str) -> str:
    """Return `text` without width, accents and other marks, in its own script: the form in which rules are compared.

    Marks are removed (also those of kana, and of Arabic), and letters that were decomposed are joined again (Hangul).
    """
    if text.isascii():
        return text
    apart = unicodedata.normalize("NFKD", text)
    bare = "".join(char for char in apart if not (is_invisible(char) or unicodedata.category(char) == "Mn"))
    return unicodedata.normalize("NFC", bare)


def readings(text: str) -> Iterator[str]:
    """Yield the distinct readings of `text`: plain, look-alikes folded, spelled words joined, decoded once."""
    seen: set[str] = set()
    for reading in (text, *_decoded(text)):
        for unfolded in _readings(reading):
            short = re.sub(_GAP, " ", unfolded)
            if short not in seen:
                seen.add(short)
                yield short


def _readings(text: str) -> Iterator[str]:
    yield plain(text)
    folded = skeleton(text)
    yield folded
    if not text.isascii() and (tagged := text.translate(_TAGS)) != text:
        yield skeleton(tagged)
    if re.search(_LEET_WORD, folded):
        yield folded.translate(_LEET)
    if re.search(_SPELLED, folded):
        yield re.sub(_SPELLED_WORD, lambda found: found[0][::2], folded)


def _decoded(text: str) -> Iterator[str]:
    if "<" in text:
        yield re.sub(_ELEMENT, "", text)
    if re.search(_INSIDE, text):
        yield re.sub(_INSIDE, "", text)
    if re.search(_ROT13, text):
        yield codecs.decode(text, "rot13")
    if "&" in text:
        yield html.unescape(text)
    if "%" in text:
        yield unquote(text)
    if "\\" in text:
        yield re.sub(_ESCAPE, lambda found: chr(int(found[1] or found[2], 16)), text)
    for found in islice(re.finditer(_RUN, text), _MOST_RUNS):
        yield from _as_text(_base64(found[0][:_LONGEST_RUN]))
    for found in islice(re.finditer(_HEX, text), _MOST_RUNS):
        yield from _as_text(bytes.fromhex(found[0].replace(":", " ")))


def _base64(run: str) -> bytes:
    digits = run.rstrip("=").replace("-", "+").replace("_", "/")
    digits = digits[: len(digits) - (len(digits) % 4 == 1)]
    return base64.b64decode(digits + "=" * (-len(digits) % 4))


def _as_text(data: bytes) -> Iterator[str]:
    for encoding in ("utf-8", "utf-16-le"):
        text = data.decode(encoding, errors="ignore")
        if text and sum(map(str.isprintable, text)) >= _LEAST_PRINTABLE * len(text):
            yield text


ORDER = "order"
"""The name that `injection_in` returns for any order of `prompt_injection.tsv`."""
_SEAM = 120
"""Characters at the ends of texts that are joined to find an order split in the middle of a word."""
_LONGEST_CACHED = 4_000
"""Length in characters up to which the outcome for a row is cached."""
_WORD = re.compile(r"[^\W_]+")
_UNSPACED = frozenset({"zh", "ja", "ko"})
"""Languages without spaces between words, or with long endings: a form may be inside a word."""

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
"""Patterns by the name that `injection_in` returns if one matches. `plain` has turned `…` into `...`."""


def injection_in(texts: Iterable[str]) -> str | None:
    """Return the name of the first form in a row's texts, alone or in sequence, in linear time; None without one."""
    parts = tuple(filter(None, texts))
    return _injection_in(parts) if sum(map(len, parts)) > _LONGEST_CACHED else _injection_in_cached(parts)


def _injection_in(parts: tuple[str, ...]) -> str | None:
    seams = "".join(ends_of(part, _SEAM) for part in parts)  # an order may be split between one part and the next
    for joined in dict.fromkeys(("\n".join(parts), seams)):
        for reading in readings(joined):
            for name, pattern in _structure():
                if pattern.search(reading):
                    return name
            said = f" {' '.join(_WORD.findall(reading.casefold()))} "
            if any(order in said for order in plain_orders()):
                return ORDER
    return None


_injection_in_cached = lru_cache(maxsize=1024)(_injection_in)
"""The same, cached for texts that are likely to be recalled again."""


@cache
def _structure() -> tuple[tuple[str, re.Pattern[str]], ...]:
    every = ((name, plain("|".join(patterns))) for name, patterns in STRUCTURE.items())
    return tuple((name, re.compile(pattern, re.IGNORECASE | re.MULTILINE)) for name, pattern in every)


@cache
def plain_orders() -> tuple[str, ...]:
    """Return the orders of `prompt_injection.tsv`, folded; in languages with spaces, with a space before and after."""
    lines = Path(__file__).with_suffix(".tsv").read_text(encoding="utf-8").splitlines()
    found = (plain(line).casefold().split("\t") for line in lines)
    return tuple(order if language in _UNSPACED else f" {order} " for language, order in found)

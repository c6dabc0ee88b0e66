"""The fence of untrusted text, and the judge of recalled text: role marks are removed, orders quoted or left out.

In a fence each text is one line, or has a bar before each line, without angle brackets, tokens of templates or the
nonce of the marks: it can neither close the fence nor seem to be outside of it. Answers of tools are cleaned, too.

Invisible characters and role marks are removed from every row: "User: likes tea" is an ordinary note. A row that is not
the reader's own is left out if `injection_in` finds an order in it, or the head `orders_a_model` is sure; it is quoted
with its source if the head is unsure, or the text too long for it. What this misses is still data in a fence.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Literal

from msgspec import Struct

from chatbot.embedder import SURE
from chatbot.memory.episode import QUESTION
from chatbot.memory.people import task_of
from chatbot.memory.prompt_injection import injection_in, skeleton, without_invisible
from chatbot.memory.writing import TASK
from chatbot.messages import FENCE, ToolSpec
from chatbot.stores.access import View, may_see
from chatbot.stores.fields import texts_in
from chatbot.stores.observation import CONTENT, FIELDS, KIND, PROFILE, SPOKEN, Observation

FILE = "attached-file"
BREAK = "·"
"""Inserted in, or in place of, a token of a chat template."""
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
"""HTML escapes, also for characters that a model may read as angle brackets."""


def with_bars(label: str, text: str) -> str:
    """Return the text with a bar before each line, and the label before the first."""
    lines = text.translate(_ESCAPED).splitlines()
    return "\n".join(f"  {label} | {line}" if not at else f"  | {line}".rstrip() for at, line in enumerate(lines))


def in_one_line(text: str) -> str:
    """Return the text without line breaks, so that it begins no line of its own."""
    return " ".join(part for line in text.translate(_ESCAPED).splitlines() if (part := line.strip()))


def fenced(name: str, entries: Sequence[str], nonce: str) -> str:
    """Return entries of `with_bars` or `in_one_line` between marks, with another nonce if an entry contains it."""
    body = without_tokens("\n".join(entries))
    while nonce.casefold() in body.casefold():
        nonce = hashlib.sha256(nonce.encode()).hexdigest()[: len(nonce)]
    mark = f'{name} nonce="{nonce}"'
    return f"<{mark}>\n{body}\n</{mark}>"


_LONGEST_MARK = 300
"""Characters of a line in which a role mark may end."""
_LINE_END = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_ROLE = (
    r"(?:system|developer|assistant|user|human|tool|bot|(?-i:model|function|AI|ai|Ai))"
    r"(?: (?:message|prompt|note|role))?(?:\s?\([^()\n]{0,30}\))?"
)
"""The roles of chat interfaces. Some are recognised only as written here: "Model: Golf VII" is about a car."""
_TIME = r"\d{4}-\d\d-\d\d[T ][\d:.]+Z?"
_LEAD = r"(?:\d{1,3}[.)]\s)?[\s·>#*_\-=`\"']*+"
_PREFIX = re.compile(
    rf"(?:{_LEAD}[\[<({{]*+\s*+{_ROLE}[\s*_`\"'\]>)}}]*+(?::[*_]*|\s*-+\s*{_TIME})"
    rf"|{_LEAD}[\[<({{]+\s*/?(?:system|developer|assistant)(?: (?:message|prompt|note))?\s*[\]>)}}]+)+\s*",
    re.IGNORECASE,
)
"""A role at the start of a line: bare, in brackets, as a heading, with a colon after it. Matching takes linear time."""


def without_role_marks(text: str) -> str:
    """Return the text without role marks, and without white space at the ends of its lines."""
    return "\n".join(map(_without_prefix, _LINE_END.split(TOKEN.sub(BREAK, text))))


def _without_prefix(line: str) -> str:
    while end := _end_of_prefix(line[:_LONGEST_MARK]):
        line = line[end:]
    return line.rstrip()


def _end_of_prefix(start: str) -> int:
    """Return where the role mark at the start of a line ends; 0 if there is none."""
    if start.isascii():
        found = _PREFIX.match(start)
        return found.end() if found else 0
    folded, ends = "", []  # look-alike letters replaced, and where the original of each character ends
    for at, char in enumerate(start):
        piece = skeleton(char)
        folded += piece
        ends += [at + 1] * len(piece)
    found = _PREFIX.match(folded)
    return ends[found.end() - 1] if found else 0


LONGEST_JUDGED = 50_000
"""Maximum characters of a row: a longer one cannot be judged, and is not shown."""

HIDDEN = "hidden"
STALE = "stale"
TOO_LONG = "too-long"
EMPTY = "empty"
ORDERS = "orders-a-model"
"""Reason if the head `orders_a_model` was sure."""
_OWN_SOURCES = frozenset({"chat", "user", PROFILE})
"""Sources of rows that the principal said, typed or stated, unlike rows of tools, models, imports and files."""
_LONGEST_SOURCE = 40
_LONGEST_FOR_HEAD = 400
"""Maximum characters of a row that the head judges."""

Label = Literal["title", "subtitle", "fact", "text", "person said", "bot asked", "bot replied", "task"]


class Verdict(Struct, frozen=True):
    """The judgement of a row: its cleaned texts in their order, or the reason to leave it out."""

    reason: str = ""
    """Why the row is left out: one of the constants above, or the name of a form; empty if it is shown."""
    texts: tuple[tuple[Label, str], ...] = ()
    quoted: str = ""
    """The source to quote the row from, if it may be an order or is long."""

    @property
    def ok(self) -> bool:
        """True if the row may be shown."""
        return not self.reason


def judge(
    row: Observation, view: View, part: Sequence[tuple[Label, str]] | None = None, *, order_level: int = 0
) -> Verdict:
    """Judge `row` as seen through `view`. `part` is what a prompt would show of it, by default all its texts.

    `order_level` is how much the head takes it for an order. Never raises; takes time in proportion to the shown text.
    """
    shown = tuple(labelled_texts(row) if part is None else part)
    written = [text for _, text in shown]
    unshown = texts_in([getattr(row, name) for name in _UNSHOWN])
    if not may_see(row, view) or not row.is_current(view.now):
        return Verdict(STALE if may_see(row, view) else HIDDEN)
    if sum(map(len, chain(written, unshown))) > LONGEST_JUDGED:
        return Verdict(TOO_LONG)
    cleaned = ((label, without_role_marks(without_invisible(text)).strip("\n")) for label, text in shown)
    texts = tuple((label, text) for label, text in cleaned if text.strip())
    if not texts:
        return Verdict(EMPTY)
    if is_readers_own(row, view):
        return Verdict(texts=texts)
    found = next(filter(None, map(injection_in, ([text for _, text in texts], written, unshown))), None)
    if found or order_level >= SURE:
        return Verdict(found or ORDERS)
    is_quoted = order_level > 0 or not judged_text(row)
    return Verdict(texts=texts, quoted=_origin(row, view) if is_quoted else "")


def is_readers_own(row: Observation, view: View) -> bool:
    """Return whether the principal of the view said, typed or stated the row: such words are never dropped."""
    return row.principal == view.principal and row.source in _OWN_SOURCES


def judged_text(row: Observation) -> str:
    """Return the text by which the head judges a row; empty for one that is too long for it."""
    whole = "\n".join(text for _, text in labelled_texts(row) if text)
    plain = unicodedata.normalize("NFKC", without_invisible(whole))
    return plain if len(plain) <= _LONGEST_FOR_HEAD else ""


def judge_tool(spec: ToolSpec) -> str | None:
    """Return the form that a tool's description contains, or None; the head would take every one for an order."""
    return injection_in((spec.name, spec.description, *texts_in(spec.parameters)))


def _origin(row: Observation, view: View) -> str:
    """Return the source of a row, in characters that are safe in a note."""
    if row.principal != view.principal:
        return "another user"
    return "".join(char for char in row.source[:_LONGEST_SOURCE] if char.isalnum() or char in ":-_. ") or "elsewhere"


def labelled_texts(row: Observation) -> Iterator[tuple[Label, str]]:
    """Yield the texts of a row that a prompt shows, with labels; some may be empty."""
    yield "title", row.title
    yield "subtitle", row.subtitle
    for fact in row.facts:
        yield "fact", fact
    yield "text", row.narrative
    yield "person said", row.user_text
    yield "bot asked", str(row.metadata.get(QUESTION, ""))
    yield "bot replied", row.assistant_text
    if row.metadata.get(KIND) == TASK:
        yield "task", task_of(row).details()


_UNSHOWN = [name for name in CONTENT if name not in SPOKEN and FIELDS[name].default in ("", ())]
"""Fields with texts that are not shown, but can make a row suspect."""

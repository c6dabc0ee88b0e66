"""Judge each row before a model sees it, and the descriptions of tools from other servers.

Memory is untrusted: anyone who could write to it may have written an instruction. The governor asks the gate again, and
takes away what is invisible and what speaks in another's name. A row that is not the reader's own is dropped where it
holds a form of `chatbot.orders`. One that the head `orders_a_model` doubts is shown as a quotation with its source, and
one of which it is sure is dropped; the head judges lines, and what is longer is a quotation anyhow. The reader's own
words are never dropped. This is a net: what slips through is still only data, for the wall is the fence of the memory
block, and the role in which it is sent.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from chatbot.chat.role_marks import without_role_marks
from chatbot.disguises import visible
from chatbot.memory.exchanges import QUESTION
from chatbot.memory.profile_lines import CATEGORY
from chatbot.memory.tasks import KIND, task_of
from chatbot.messages import ToolSpec
from chatbot.orders import form_in
from chatbot.stores.access import View, may_see
from chatbot.stores.observation import CONTENT, FIELDS, SPOKEN, Observation

LONGEST_JUDGED = 50_000
"""Characters that a row may have: a longer one cannot be judged, and is not shown."""

HIDDEN = "hidden"
STALE = "stale"
TOO_LONG = "too-long"
EMPTY = "empty"
ORDERS = "orders-a-model"
"""The head was sure. Other reasons are the names of forms: see `chatbot.orders`."""
_SURE = 2
"""The higher level of the head `orders_a_model`."""
_OWN_SOURCES = frozenset({"chat", "user", CATEGORY})
"""Sources of rows that the principal said, typed or stated; not what tools, models, imports and files brought."""
_LONGEST_SOURCE = 40
_LINE = 400
"""Characters up to which the head judges a row."""

Label = Literal["title", "subtitle", "fact", "text", "person said", "bot asked", "bot replied", "task"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of a row: its cleaned texts in their order, or the reason to leave it out."""

    ok: bool
    reason: str = ""
    """Empty, or one of the words above, or the name of the form that the row holds."""
    texts: tuple[tuple[Label, str], ...] = ()
    quoted: str = ""
    """The source of which the row is a quotation, where it may be an order or is long."""


def judge(row: Observation, view: View, part: Sequence[tuple[Label, str]] | None = None, *, orders: int = 0) -> Verdict:
    """Judge `row` as seen through `view`, or a `part` of it alone, whatever the rest of it says.

    `orders` is the level that the head gave it. Never raises, and takes time in proportion to the length of what is to
    be shown.
    """
    shown = tuple(said_by(row) if part is None else part)
    if reason := _unfit(row, view, [text for _, text in shown]):
        return Verdict(ok=False, reason=reason)
    cleaned = ((label, without_role_marks(visible(text)).strip("\n")) for label, text in shown)
    texts = tuple((label, text) for label, text in cleaned if text.strip())
    if not texts:
        return Verdict(ok=False, reason=EMPTY)
    if is_own(row, view):
        return Verdict(ok=True, texts=texts)
    if reason := _hostile(row, [text for _, text in shown], [text for _, text in texts], orders):
        return Verdict(ok=False, reason=reason)
    is_quoted = orders > 0 or len(_said(row)) > _LINE
    return Verdict(ok=True, texts=texts, quoted=_origin(row, view) if is_quoted else "")


def _unfit(row: Observation, view: View, shown: Sequence[str]) -> str:
    """Return why the row may not be shown, whatever it says; empty where it may."""
    if not may_see(row, view):
        return HIDDEN
    if not row.is_current(view.now):
        return STALE
    return TOO_LONG if sum(map(len, chain(shown, _beside(row)))) > LONGEST_JUDGED else ""


def _hostile(row: Observation, written: Sequence[str], cleaned: Sequence[str], orders: int) -> str:
    """Return why a row of somebody else may not be shown: the form that it holds, or what the head says."""
    for texts in (cleaned, written, tuple(_beside(row))):
        if form := form_in(texts):
            return form
    return ORDERS if orders >= _SURE else ""


def is_own(row: Observation, view: View) -> bool:
    """Return whether the principal of the view said, typed or stated the row: such words are never dropped."""
    return row.principal == view.principal and row.source in _OWN_SOURCES


def line_of(row: Observation) -> str:
    """Return the text by which the head judges a row; empty for one that is too long for it."""
    said = unicodedata.normalize("NFKC", visible(_said(row)))
    return said if len(said) <= _LINE else ""


def judge_tool(spec: ToolSpec) -> str | None:
    """Return the name of the form that a tool's description holds; None where the tool may be offered.

    The head is not asked: every description of a tool tells a model what to do.
    """
    return form_in((spec.name, spec.description, *_strings(spec.parameters)))


def _origin(row: Observation, view: View) -> str:
    """Return where a row comes from, in letters that may stand in a head line."""
    if row.principal != view.principal:
        return "another user"
    return "".join(char for char in row.source[:_LONGEST_SOURCE] if char.isalnum() or char in ":-_. ") or "elsewhere"


def _strings(value: object) -> Iterator[str]:
    """Every text in a schema, the names of its properties among them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from chain.from_iterable(map(_strings, chain.from_iterable(value.items())))
    elif isinstance(value, list):
        yield from chain.from_iterable(map(_strings, value))


def said_by(row: Observation) -> Iterator[tuple[Label, str]]:
    """Everything that a prompt shows of a row, with its labels; some may be empty."""
    yield "title", row.title
    yield "subtitle", row.subtitle
    for fact in row.facts:
        yield "fact", fact
    yield "text", row.narrative
    yield "person said", row.user_text
    yield "bot asked", str(row.metadata.get(QUESTION, ""))
    yield "bot replied", row.assistant_text
    if row.metadata.get("kind") == KIND:
        yield "task", task_of(row).details()


def _said(row: Observation) -> str:
    return "\n".join(text for _, text in said_by(row) if text)


def _beside(row: Observation) -> Iterator[str]:
    """Return texts that are not shown, but would make a row suspect."""
    for name in _BESIDE:
        value = getattr(row, name)
        yield from (value,) if isinstance(value, str) else value


_BESIDE = [name for name in CONTENT if name not in SPOKEN and FIELDS[name].default in ("", ())]

"""Judge each row before a model sees it, and the descriptions of tools from other servers.

Memory is untrusted: anyone who could write to it may have written an instruction. The governor is a net. It asks the
gate again, takes away what is invisible and what speaks in another's name, and drops rows that read like instructions.
What slips through is still only data: the wall is the fence of the memory block, and the role in which it is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from chatbot.chat.disguises import visible
from chatbot.chat.role_marks import without_role_marks
from chatbot.chat.rules import TOOL_RULES, rule_against
from chatbot.memory.tasks import KIND, task_of
from chatbot.messages import ToolSpec
from chatbot.stores.access import View, may_see
from chatbot.stores.observation import CONTENT, FIELDS, SPOKEN, Observation

LONGEST_JUDGED = 50_000
"""Characters that a row may have: a longer one cannot be judged, and is not shown."""

HIDDEN = "hidden"
STALE = "stale"
TOO_LONG = "too-long"
EMPTY = "empty"

Label = Literal["title", "subtitle", "fact", "text", "person said", "bot replied", "task"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of a row: its cleaned texts in their order, or the reason to leave it out."""

    ok: bool
    reason: str = ""
    """Empty, or one of the words above, or the name of the rule that the row broke."""
    texts: tuple[tuple[Label, str], ...] = ()


def judge(row: Observation, view: View, part: Sequence[tuple[Label, str]] | None = None) -> Verdict:
    """Judge `row` as seen through `view`, or a `part` of it alone, whatever the rest of it says.

    Never raises, and takes time in proportion to the length of what is to be shown.
    """
    if not may_see(row, view):
        return Verdict(ok=False, reason=HIDDEN)
    if not row.is_current(view.now):
        return Verdict(ok=False, reason=STALE)
    shown, beside = tuple(said_by(row) if part is None else part), tuple(_beside(row))
    if sum(len(text) for text in chain((text for _, text in shown), beside)) > LONGEST_JUDGED:
        return Verdict(ok=False, reason=TOO_LONG)
    texts: list[tuple[Label, str]] = []
    for label, text in shown:
        if cleaned := without_role_marks(visible(text)).strip("\n"):
            texts.append((label, cleaned))
    said, written = [text for _, text in texts], [text for _, text in shown if text]
    for judged in (said, [] if written == said else written, beside):
        if rule := rule_against(judged):
            return Verdict(ok=False, reason=rule)
    return Verdict(ok=True, texts=tuple(texts)) if texts else Verdict(ok=False, reason=EMPTY)


def judge_tool(spec: ToolSpec) -> str | None:
    """Return the name of the rule that a tool's description breaks; None where the tool may be offered."""
    return rule_against((spec.name, spec.description, *_strings(spec.parameters)), TOOL_RULES)


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
    yield "bot replied", row.assistant_text
    if row.metadata.get("kind") == KIND:
        yield "task", task_of(row).details()


def _beside(row: Observation) -> Iterator[str]:
    """Return texts that are not shown, but would make a row suspect."""
    for name in _BESIDE:
        value = getattr(row, name)
        yield from (value,) if isinstance(value, str) else value


_BESIDE = [name for name in CONTENT if name not in SPOKEN and FIELDS[name].default in ("", ())]

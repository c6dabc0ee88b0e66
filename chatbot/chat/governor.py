"""The last look at a remembered row before a model sees it, and at what a stranger's tool says of itself.

Memory is untrusted: whoever could write into it may have written an instruction. The governor is a net. It asks the
gate again, takes away what is invisible and what speaks in another's name, and drops rows that read like instructions.
What slips through is still only data: the wall is the fence of the memory block, and the role in which it is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from chatbot.chat.disguises import visible
from chatbot.chat.role_marks import without_role_marks
from chatbot.chat.rules import TOOL_RULES, rule_against
from chatbot.messages import ToolSpec
from stores.access import View, may_see
from stores.observation import Observation

LONGEST_JUDGED = 50_000
"""How many characters a row may have in all: what is not judged is not shown."""

HIDDEN = "hidden"
STALE = "stale"
TOO_LONG = "too-long"
EMPTY = "empty"

Label = Literal["title", "subtitle", "fact", "text", "person said", "bot replied"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a row may be shown: its cleaned texts in the order in which they are, or why not."""

    ok: bool
    reason: str = ""
    """Empty, or one of the words above, or the name of the rule that the row broke."""
    texts: tuple[tuple[Label, str], ...] = ()


def judge(row: Observation, view: View) -> Verdict:
    """What of `row` may be shown through `view`. Never raises, and takes time in proportion to the row's length."""
    if not may_see(row, view):
        return Verdict(ok=False, reason=HIDDEN)
    if not row.is_current(view.now):
        return Verdict(ok=False, reason=STALE)
    shown, beside = tuple(_shown(row)), tuple(_beside(row))
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
    """The name of the rule that a stranger's tool breaks by what it says of itself; None where it may be offered."""
    return rule_against((spec.name, spec.description, *_strings(spec.parameters)), TOOL_RULES)


def _strings(value: object) -> Iterator[str]:
    """Every text in a schema, the names of its properties among them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from chain.from_iterable(map(_strings, chain.from_iterable(value.items())))
    elif isinstance(value, list):
        yield from chain.from_iterable(map(_strings, value))


def _shown(row: Observation) -> Iterator[tuple[Label, str]]:
    yield "title", row.title
    yield "subtitle", row.subtitle
    for fact in row.facts:
        yield "fact", fact
    yield "text", row.narrative
    yield "person said", row.user_text
    yield "bot replied", row.assistant_text


def _beside(row: Observation) -> Iterator[str]:
    """What is not shown, and would make a row suspect all the same."""
    yield from (row.subject, row.category, row.project)
    yield from chain(row.tags, row.concepts, row.people, row.files_read, row.files_modified)

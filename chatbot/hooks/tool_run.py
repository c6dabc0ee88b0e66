"""Describe a tool run by rule: its type, title, subtitle, concepts, importance, files and milestones.

Secrets are removed before anything is cut, so that no part of one remains. Memory blocks are removed too: recalled rows
are never remembered as new.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from chatbot.memory.memorability import OTHER_TYPE, TYPE_WEIGHTS
from chatbot.messages import without_blocks
from chatbot.redaction import redact
from chatbot.stores.observation import Type
from chatbot.tools import ToolResult

LONGEST_OUTPUT = 4_000
"""Characters of an output that are kept."""
_READ = 2 * LONGEST_OUTPUT
"""Characters of an output that are read."""
_LONGEST_ARGUMENTS = 2_000
_LONGEST_TITLE = 120
_LONGEST_SUBTITLE = 160
_LONGEST_OUTCOME = 40
_LONGEST_ASIDE = 24
_MOST_FILES = 20
_FILE_KEYS = frozenset({"path", "file", "target", "from", "to"})
_DISTINCTIVE_KEYS = ("command", "query", "path", "file", "url", "target", "name", "from", "to")
"""Arguments that distinguish two runs, the most distinctive first."""

_WRITES = re.compile(r"(?:^|_)(?:write|edit|save|create|append|patch|update|move|rename|delete|remove|replace)(?:$|_)")
_WORD_END = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[-.]")
_PASSED = re.compile(r"\b[1-9]\d* (?:tests? )?pass(?:ed|ing)\b|\bOK \(\d+ tests?\)", re.IGNORECASE)
_FAILED = re.compile(
    r"\b[1-9]\d* (?:tests? )?(?:fail(?:ed|ures?|ing)|errors?)\b|\b(?:failed|failures?|errors?) ?[:=] ?[1-9]"
    r"|^(?:FAIL(?:ED)?|not ok|Traceback)\b|\bexit code [1-9]",
    re.IGNORECASE | re.MULTILINE,
)
_COUNT = re.compile(r"\b\d+ (?:tests? )?(?:passed|passing|fail(?:ed|ures?|ing)|errors?|skipped)\b", re.IGNORECASE)
"""Patterns of the reports of test runners: passed, failed, and counts."""
_DONE = frozenset({"done", "completed", "complete", "closed", "finished"})


class ToolRun(Struct, frozen=True):
    """One cleaned run of a tool: its arguments, and its shortened output."""

    tool: str
    arguments: Mapping[str, Any]
    output: str
    is_error: bool

    @classmethod
    def of(cls, result: ToolResult) -> ToolRun:
        """Make the run of a result."""
        given, output = _cleaned(result.call.arguments), _cleaned(result.content)
        try:
            arguments = json.loads(given or "{}")
        except (ValueError, RecursionError):
            arguments = {"arguments": given}
        table = arguments if isinstance(arguments, dict) else {"arguments": arguments}
        return cls(" ".join(result.call.name.split())[:80], table, output[:LONGEST_OUTPUT], result.is_error)

    @property
    def title(self) -> str:
        """`Tool run: <tool>`, its arguments or else its answer, which distinguish it, and how it ended."""
        subject = _main_argument(self.arguments) or _first_line(self.output)
        ended = self.outcome if self.outcome not in subject else ""
        room = _LONGEST_TITLE - len(f"Tool run: {self.tool} · ") - len(f" · {ended}" if ended else "")
        return _short(" · ".join(filter(None, (f"Tool run: {self.tool}", _ends(subject, room), ended))), _LONGEST_TITLE)

    @property
    def outcome(self) -> str:
        """Return how it ended, if it says so: the counts of a test report, or failure."""
        counted = next(filter(None, map(_COUNT.findall, reversed(self.output.splitlines()))), [])
        return _short(", ".join(counted) or ("failed" if self.is_error else ""), _LONGEST_OUTCOME)

    @property
    def subtitle(self) -> str:
        """The first line of its answer."""
        line = _first_line(self.output)
        return _short(f"failed: {line}" if self.is_error else line, _LONGEST_SUBTITLE)

    @property
    def narrative(self) -> str:
        """Arguments and output."""
        given = json.dumps(self.arguments, ensure_ascii=False)[:_LONGEST_ARGUMENTS] if self.arguments else "none"
        return f"arguments: {given}\n\noutput: {self.output}"

    @property
    def facts(self) -> tuple[str, str]:
        """The tool's name, and whether it failed."""
        return f"tool: {self.tool}", f"error: {str(self.is_error).lower()}"

    @property
    def type(self) -> Type:
        """The type of the row: never a decision, which is protected, for the output of a tool must not be."""
        return "change" if self.writes and not self.is_error else "technical"

    @property
    def writes(self) -> bool:
        """True if the tool's name says that it changes files."""
        return _WRITES.search(_WORD_END.sub("_", self.tool).lower()) is not None

    @property
    def concepts(self) -> tuple[str, ...]:
        """The concepts that its outcome has: something changed, or something to beware of."""
        return ("gotcha",) if self.is_error else ("what-changed",) if self.writes else ()

    @property
    def importance(self) -> float:
        """Return the importance: the weight of its type, more if it changed files or failed."""
        weight = TYPE_WEIGHTS.get(self.type, OTHER_TYPE)
        return round(min(1.0, 0.2 + 0.5 * weight + 0.1 * (self.writes and bool(self.files)) + 0.1 * self.is_error), 2)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that its arguments name."""
        return tuple(dict.fromkeys(_files(self.arguments)))[:_MOST_FILES]

    @property
    def substance(self) -> str:
        """The text for judging memorability, without listings of names."""
        lines = [line for line in self.output.splitlines() if len(line.split()) > 1]
        return "\n".join([*_texts(self.arguments), *lines])

    def milestones(self) -> Iterator[tuple[str, str]]:
        """Yield the kind and the object of each milestone: a task is done, a file is saved, tests pass."""
        if self.is_error:
            return
        if self.tool.endswith("task_update") and str(self.arguments.get("status", "")).lower() in _DONE:
            yield "task done", _task(self)
        if _PASSED.search(self.output) and not _FAILED.search(self.output):
            yield "tests pass", _main_argument(self.arguments) or self.tool
        if self.writes and self.files:
            yield "file saved", self.files[-1]


def _cleaned(text: str) -> str:
    """Remove memory blocks and secrets. Of a text that is read in part, also drop the last half.

    Its cut end may contain part of a secret, and the removals may have moved that forward.
    """
    text = without_blocks(text)
    clean, _ = redact(text[:_READ])
    return clean if len(text) <= _READ else clean[: -_READ // 2]


def _task(run: ToolRun) -> str:
    try:
        answer = json.loads(run.output)
        return str(answer.get("title") or answer["task"]["title"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return _main_argument(run.arguments) or "a task"


def _main_argument(arguments: Mapping[str, Any]) -> str:
    """Return the two most distinctive arguments, and the ends of two others."""
    given = {
        key.lower(): " ".join(str(each).split())
        for key, each in arguments.items()
        if isinstance(each, str | int | float)
    }
    distinctive = [given.pop(key) for key in _DISTINCTIVE_KEYS if given.get(key)][:2]
    others = list(filter(None, given.values()))
    if not distinctive:
        distinctive, others = others[:2], others[2:]
    return " ".join([*distinctive, *(_ends(each, _LONGEST_ASIDE) for each in others[:2])])


def _files(arguments: Mapping[str, Any]) -> Iterator[str]:
    for key, value in arguments.items():
        if key.lower() in _FILE_KEYS:
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, str) and (path := " ".join(each.split())) and len(path) <= 500:
                    yield path


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)


def _first_line(text: str) -> str:
    return next((" ".join(line.split()) for line in text.splitlines() if line.strip(" \t{}[]().,:;\"'-=")), "")


def _short(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def _ends(text: str, longest: int) -> str:
    """Cut the middle out of a long text, for paths that differ at the end."""
    if len(text) <= longest:
        return text
    tail = max(longest - 1, 0) * 2 // 3
    return f"{text[: max(longest - 1 - tail, 0)].rstrip()}…{text[len(text) - tail :].lstrip()}"

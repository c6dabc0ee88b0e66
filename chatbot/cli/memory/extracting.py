"""`chatbot memory extract`: facts out of a text, by a model."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from chatbot.chat.calls import Calls
from chatbot.chat.ledger import Ledger
from chatbot.chat.usage import cost_text
from chatbot.cli.memory.verb_run import VerbRun
from chatbot.cli.output import printable, progress, say, say_json, say_table, warn
from chatbot.hooks.extraction.extraction_model import calls_for_extraction, settings_of_model
from chatbot.hooks.extraction.facts import FactList, extract_facts, parts_of
from chatbot.hooks.extraction.learning import FactOutcome, Origin, apply, plan
from chatbot.models import open_model
from chatbot.stores.access import Guard, default_visibility
from chatbot.stores.errors import InvalidValue

_LONGEST = 1_000_000


async def extract(run: VerbRun) -> None:
    """Show the facts in a text, or remember them; what was found before a failure is not lost."""
    text = _read(run.args.file)
    config = run.setup.config
    if run.args.model is not None:
        config = replace(config, extraction=replace(config.extraction, model=""))
    settings = settings_of_model(config.model, config.extraction) or config.model
    async with open_model(settings, config.providers) as model:
        calls = calls_for_extraction(model, Ledger(run.setup.home), config)
        told = _Summary(run.args.json)
        parts = len(list(parts_of(text)))
        try:
            with progress("extracting") as tell:
                async for extracted in extract_facts(calls, text):
                    told.add(extracted, await _kept(run, calls, extracted) if run.args.add else None)
                    if tell is not None:
                        tell(told.parts, parts)
        finally:
            told.show(sum(call.usage.cost_usd or 0 for call in calls.made), len(calls.made))


async def _kept(run: VerbRun, calls: Calls, extracted: FactList) -> Sequence[FactOutcome]:
    setup = run.setup
    guard = Guard(default_visibility(setup.identity.clearance), "public", "public", run.args.namespace or "")
    origin = Origin(setup.agent, guard)
    steps = await plan(extracted.facts, run.memories, calls, origin, setup.config.extraction)
    return await apply(steps, run.memories, origin)


class _Summary:
    """Summary that is printed at the end."""

    def __init__(self, as_json: bool) -> None:  # noqa: FBT001 - the flag as it came
        self._as_json = as_json
        self.parts = 0
        self._facts: list[dict[str, Any]] = []
        self._dropped: list[tuple[str, str]] = []

    def add(self, extracted: FactList, learned: Sequence[FactOutcome] | None) -> None:
        """Take in one part of the text."""
        self.parts += 1
        became = [each.as_json() for each in learned] if learned is not None else [{} for _ in extracted.facts]
        self._facts += [asdict(fact) | more for fact, more in zip(extracted.facts, became, strict=True)]
        self._dropped += extracted.dropped

    def show(self, cost_usd: float, calls: int) -> None:
        """Print it all."""
        if self._as_json:
            dropped = [{"content": content, "reason": reason} for content, reason in self._dropped]
            say_json({"facts": self._facts, "dropped": dropped, "calls": calls, "cost_usd": cost_usd})
            return
        for content, reason in self._dropped:
            warn(printable(f"left out ({reason}): {content}"))
        if self._facts:
            say_table(("type", "became", "subject", "fact"), map(_row, self._facts))
        else:
            say("the model found no facts")
        say(f"{calls} model calls · {cost_text(cost_usd)}")


def _row(fact: dict[str, Any]) -> list[str]:
    became = " ".join(filter(None, (fact.get("outcome", "not kept"), fact.get("id"), fact.get("reason"))))
    return [fact["type"], became, fact["subject"] or "–", fact["content"]]


def _read(name: str) -> str:
    """The text of a file, or of standard input. Raises `InvalidValue` where it is none, or too long."""
    try:
        data = sys.stdin.buffer.read(_LONGEST + 1) if name == "-" else _first_bytes(Path(name))
        if len(data) > _LONGEST:
            raise InvalidValue(f"{name} is longer than {_LONGEST:,} bytes: give it in parts")
        text = data.decode()
    except OSError as error:
        raise InvalidValue(f"{name} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidValue(f"{name} is not UTF-8 text: convert it first, e.g. with iconv") from error
    if not text.strip():
        raise InvalidValue(f"{name} holds no text")
    return text


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_LONGEST + 1)

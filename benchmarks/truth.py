# /// script
# requires-python = ">=3.11"
# dependencies = ["chatbot-runtime[embeddings]"]
#
# [tool.uv.sources]
# chatbot-runtime = { path = ".." }
# ///
"""How often the slots of a profile are filled rightly, and how often it is known which of two statements is outdated.

    uv run benchmarks/truth.py                            # the labelled lines and pairs that come with this script
    uv run benchmarks/truth.py --talk locomo10.json       # real talk, labelled by id, as well
    uv run benchmarks/truth.py --extraction local/smollm2-135m    # facts of a model, beside scripted ones
    uv run benchmarks/truth.py --half unseen              # every other line only, which no rule was tuned on

The lines are those of `sets/slots.txt`, the labels of real talk those of `sets/slots_locomo.txt`, the pairs those of
`sets/changes.txt`; all of them were labelled before there were rules. `slots_second.txt` and `changes_second.txt` came
later, and were labelled before the rules were looked at again. What a model tells of lines that no rule reads
stands in `sets/extracted.txt`: a scripted model replies with that.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from chatbot.chat.calls import Calls
from chatbot.chat.ledger import Ledger
from chatbot.config import BudgetSettings, ModelSettings
from chatbot.errors import ChatbotError
from chatbot.hooks.extraction.facts import ExtractedFact, extract
from chatbot.memory.changes import changes, statement
from chatbot.memory.profile_learning import in_first_person, is_in_words
from chatbot.memory.slots import stated
from chatbot.models import open_model
from chatbot.models.model import Model
from chatbot.models.scripted import ScriptedModel

OUTDATED = ("update", "correction", "denial")
"""Kinds of pairs whose first statement is outdated by the second."""
SETS = Path(__file__).parent / "sets"
REPLY_S = 40.0
"""Seconds that a model has for one reply."""
AT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Labelled:
    """A line, and the slots that it fills; those in `allowed` it may fill as well."""

    question: str
    text: str
    wanted: frozenset[str]
    allowed: frozenset[str]


def lines(name: str) -> list[list[str]]:
    """The fields of each line of a set."""
    said = (SETS / name).read_text(encoding="utf-8").splitlines()
    return [[part.strip() for part in line.split("|")] for line in said if line.strip() and line[0] != "#"]


def labelled(question: str, text: str, labels: str) -> Labelled:
    found = [label.strip().casefold() for label in labels.split(";") if label.strip()]
    wanted = frozenset(each for each in found if each[0] != "?")
    return Labelled(question, text, wanted, wanted | {each[1:] for each in found if each[0] == "?"})


def everyday(name: str) -> list[Labelled]:
    return [labelled(*(line + [""] * (3 - len(line)))) for line in lines(name)]


def talk(path: Path) -> list[Labelled]:
    """The turns of LoCoMo that were labelled, with the texts of a file of it."""
    texts: dict[tuple[str, str], str] = {}
    for sample in json.loads(path.read_text(encoding="utf-8")):
        for name, turns in sample["conversation"].items():
            if name.startswith("session_") and isinstance(turns, list):
                texts |= {(sample["sample_id"], turn["dia_id"]): turn["text"] for turn in turns}
    return [
        labelled("", texts[sample, turn], "".join(rest))
        for sample, turn, *rest in lines("slots_locomo.txt")
        if (sample, turn) in texts
    ]


def half(rows: list[Labelled], which: str) -> list[Labelled]:
    return rows if which == "all" else rows[which == "unseen" :: 2]


def written(text: str, question: str) -> Iterator[str]:
    for each in stated(text, question):
        yield f"{'-' * each.ended}{each.slot}={each.value}".casefold()


def by_rules(rows: list[Labelled]) -> list[tuple[Labelled, set[str]]]:
    return [(row, set(written(row.text, row.question))) for row in rows]


def slots(rows: list[tuple[Labelled, set[str]]], name: str, *, show: bool) -> None:
    """Print the wrong among the filled, and the found among the wanted, by slot and over all."""
    filled: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for row, found in rows:
        for each in found:
            filled[kind(each)] += 1
            wrong[kind(each)] += each not in row.allowed
        for each in row.wanted:
            wanted[kind(each)] += 1
            missed[kind(each)] += each not in found
        if show and (bad := found - row.allowed):
            print("  WRONG ", row.question, "|", row.text, "->", bad)
        if show and (missing := row.wanted - found):
            print("  MISSED", row.question, "|", row.text, "->", set(missing))
    print(f"{name}: {len(rows)} lines, {filled.total()} slots filled, {wrong.total()} wrong", end="")
    print(f" ({100 * wrong.total() / max(filled.total(), 1):.1f} in 100)", end="")
    print(f"; {wanted.total() - missed.total()} of {wanted.total()} wanted slots found")
    for slot in sorted(filled | wanted):
        right = wanted[slot] - missed[slot]
        print(f"    {slot:10} filled {filled[slot]:3}, wrong {wrong[slot]:2}; found {right:3} of {wanted[slot]:3}")


@dataclass(frozen=True)
class Told:
    """Message of a person, the facts that a model extracted from it, and the slots that these should fill."""

    said: str
    facts: tuple[str, ...]
    row: Labelled


def told() -> list[Told]:
    return [
        Told(said, tuple(each.strip() for each in facts.split(";")), labelled("", said, labels))
        for said, facts, labels in lines("extracted.txt")
    ]


async def extracted(rows: list[Told], model: str) -> list[tuple[Labelled, set[str]]]:
    """The slots that `[extraction]` fills: by the facts that stand in the set, or by those of a model."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for each in rows:
            reply = json.dumps({"facts": [{"content": fact} for fact in each.facts]})
            asked: Model = ScriptedModel([reply]) if model == "scripted" else open_model(ModelSettings(name=model))
            calls = Calls(asked, Ledger(Path(folder)), BudgetSettings(), reply_tokens=200, timeout_s=REPLY_S)
            facts: Sequence[ExtractedFact] = ()
            with suppress(ChatbotError):  # a model that is too slow, or replies with no facts, fills no slot
                facts = (await extract(calls, [("person said", each.said)], at=AT)).facts
            by_facts = (label for fact in facts for label in written(in_first_person(fact.content), ""))
            filled = {label for label in by_facts if is_in_words(label.partition("=")[2], each.said)}
            found.append((each.row, filled))
            await asked.aclose()
    return found


def pairs(name: str, which: str, *, show: bool) -> None:
    """Print how many outdated statements are known as such, and how many that hold are taken for outdated, by kind."""
    rows = lines(name)
    rows = rows if which == "all" else rows[which == "unseen" :: 2]
    told: defaultdict[str, list[bool]] = defaultdict(list)
    for label, first, second, _ in rows:
        is_changed = changes(statement(first), statement(second))
        told[label].append(is_changed)
        if show and is_changed is not (label in OUTDATED):
            print("  WRONG ", label, "|", first, "|", second)
    for label, found in told.items():
        word = "known as outdated" if label in OUTDATED else "wrongly taken for outdated"
        print(f"    {label:10} {sum(found):3} of {len(found):3} {word}")
    for those, word in ((True, "known as outdated"), (False, "wrongly taken for outdated")):
        all_of = [each for label, found in told.items() if (label in OUTDATED) is those for each in found]
        print(f"pairs of {name}: {sum(all_of)} of {len(all_of)} {word}")


def kind(label: str) -> str:
    slot = label.partition("=")[0].removeprefix("-")
    known = {"name", "nickname", "phone", "email", "birthday", "home", "job", "employer", "allergy", "speaks", "learns"}
    return slot if slot in known else "relatives"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--talk", type=Path, help="a file of LoCoMo, for the turns that are labelled by id")
    parser.add_argument(
        "--extraction", action="append", default=["scripted"], metavar="MODEL", help="also by facts of this model"
    )
    parser.add_argument("--half", choices=("all", "seen", "unseen"), default="all", help="every other line")
    parser.add_argument("--show", action="store_true", help="print each wrong and each missed slot")
    given = parser.parse_args()
    for name in ("slots.txt", "slots_second.txt"):
        slots(by_rules(half(everyday(name), given.half)), f"everyday lines of {name}", show=given.show)
    if given.talk:
        slots(by_rules(half(talk(given.talk), given.half)), "real talk", show=given.show)
    rows = told() if given.half == "all" else told()[given.half == "unseen" :: 2]
    slots(by_rules([each.row for each in rows]), "what is told in other words, by rules alone", show=given.show)
    for model in given.extraction:
        slots(asyncio.run(extracted(rows, model)), f"the same, by [extraction] with {model}", show=given.show)
    for name in ("changes.txt", "changes_second.txt"):
        pairs(name, given.half, show=given.show)


if __name__ == "__main__":
    main()

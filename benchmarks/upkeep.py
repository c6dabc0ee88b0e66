# /// script
# requires-python = ">=3.11"
# dependencies = ["chatbot-runtime"]
#
# [tool.uv.sources]
# chatbot-runtime = { path = ".." }
# ///
"""Effect of maintenance on recall: gold in the memory block, with and without it. No model, no network.

    uv run benchmarks/upkeep.py locomo10.json
    uv run benchmarks/upkeep.py locomo10.json --questions odd --conversations 2
    uv run benchmarks/upkeep.py beam.json --form common

Every conversation is remembered as exchanges in three memories: one is never maintained, one by the default policy
after each session and a month after the last, and one with sessions summarized after 30 days. Every question is asked a
month later, for a memory block of 5 rows and 2,000 tokens. A gold turn is found if its exact words are in the block.
Half of the questions (`--questions odd`) are for the final test: tune on the others.

`common` is the form of `{id, now, docs: [{id, session, at, user, asst | narrative}], queries: [{texts, gold}]}`.
"""

import argparse
import asyncio
import html
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from locomo import conversations, exchanges

from chatbot.chat.memory_block import build_block
from chatbot.config import MaintenanceSettings
from chatbot.memory import MemorySystem
from chatbot.memory.writing import Draft
from chatbot.models.model import estimate_text
from chatbot.stores.access import View

AGENT = "upkeep"
LATER = timedelta(days=31)
POLICIES: dict[str, MaintenanceSettings | None] = {
    "never": None,
    "default": MaintenanceSettings(),
    "rolled up": MaintenanceSettings(summarize_after_days=30),
}


@dataclass(frozen=True)
class Memo:
    """One thing to remember, and the texts to be found again, by their ids."""

    session: str
    at: datetime
    fields: dict[str, Any]
    texts: dict[str, str]


@dataclass(frozen=True)
class Asked:
    texts: tuple[str, ...]
    gold: tuple[str, ...]


Talk = tuple[list[Memo], list[Asked]]


def from_locomo(path: Path) -> Iterator[Talk]:
    for turns, questions in conversations(path):
        memos = []
        for pair in exchanges(turns):
            said = [f"{turn.speaker}: {turn.text}" for turn in pair]
            fields = dict(zip(("user_text", "assistant_text"), said, strict=False))
            texts = {turn.id: line for turn, line in zip(pair, said, strict=True)}
            memos.append(Memo(str(pair[0].session), pair[0].at, {"type": "exchange", **fields}, texts))
        yield memos, [Asked((each.text,), tuple(each.gold)) for each in questions]


def from_common(path: Path) -> Iterator[Talk]:
    for talk in json.loads(path.read_text(encoding="utf-8")):
        memos = []
        for doc in talk["docs"]:
            at = datetime.fromisoformat(doc["at"])
            at = at if at.tzinfo else at.replace(tzinfo=UTC)
            fields = {"user_text": doc.get("user") or "", "assistant_text": doc.get("asst") or ""}
            fields = {"type": "exchange", **fields} if any(fields.values()) else {"narrative": doc["narrative"]}
            texts = {doc["id"]: doc.get("user") or doc.get("narrative") or doc["asst"]}
            memos.append(Memo(str(doc["session"]), at, fields, texts))
        yield (
            sorted(memos, key=lambda each: each.at),
            [Asked(tuple(each["texts"]), tuple(each["gold"])) for each in talk["queries"] if each["gold"]],
        )


async def live(
    memos: Sequence[Memo], folder: Path, policy: MaintenanceSettings | None
) -> tuple[MemorySystem, datetime]:
    """Remember everything at its time, maintaining the memory after each session and a month after the last."""
    now = memos[0].at
    settings = {"observations": {"cache": str(folder / "cache")}}
    memory = MemorySystem(folder / "memory", clock=lambda: now, settings=settings)
    for name in dict.fromkeys(each.session for each in memos):
        session = await memory.create_session(["basic_session", "observations"], AGENT)
        here = [each for each in memos if each.session == name]
        now = max(now, here[-1].at + timedelta(hours=1))
        await session.memory.remember_all([Draft(**each.fields, created_at=each.at) for each in here])
        if policy is not None:
            await memory.maintain(policy, whole=True)
    now += LATER
    if policy is not None:
        await memory.maintain(policy, whole=True)
    return memory, now


async def gold_in_block(memory: MemorySystem, now: datetime, talk: Talk, half: str) -> tuple[list[float], list[int]]:
    """Return for each question the share of its gold texts in the block, and the tokens of the block."""
    texts = {name: " ".join(text.split()) for each in talk[0] for name, text in each.texts.items()}
    shares, sizes = [], []
    for number, question in enumerate(talk[1]):
        if half != "all" and number % 2 != (half == "odd"):
            continue
        hits = (await memory.memory(AGENT).recall(question.texts, limit=5)).hits
        rows = [(hit.observation, hit.score) for hit in hits if hit.observation is not None]
        view = View("full", now)
        block = build_block(rows, nonce="0f9c0f9c", view=view, count=estimate_text, asked=question.texts)
        shown = " ".join(html.unescape(block.text).split())
        shares.append(sum(texts[each] in shown for each in question.gold) / len(question.gold))
        sizes.append(estimate_text(block.text))
    return shares, sizes


async def run(talks: Iterator[Talk], *, most: int, half: str, names: Sequence[str]) -> None:
    shares: defaultdict[str, list[float]] = defaultdict(list)
    sizes: defaultdict[str, list[int]] = defaultdict(list)
    rows: defaultdict[str, int] = defaultdict(int)
    for number, talk in enumerate(talks):
        if most and number >= most:
            break
        for name in names:
            with tempfile.TemporaryDirectory() as folder:
                memory, now = await live(talk[0], Path(folder), POLICIES[name])
                async with memory:
                    found, tokens = await gold_in_block(memory, now, talk, half)
                    rows[name] += (await memory.memory(AGENT).stats()).by_status.get("active", 0)
                shares[name] += found
                sizes[name] += tokens
    print(f"{len(shares[names[0]])} questions ({half}); share of gold in the block, tokens of the block, active rows\n")
    for name in names:
        gold = 100 * sum(shares[name]) / len(shares[name])
        changed = [after - before for before, after in zip(shares[names[0]], shares[name], strict=True)]
        better, worse = sum(each > 0 for each in changed), sum(each < 0 for each in changed)
        size = sum(sizes[name]) / len(sizes[name])
        print(f"{name:10} {gold:5.1f} %  better {better:3}  worse {worse:3}  {size:5.0f} tokens  {rows[name]:6} rows")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--form", choices=["locomo", "common"], default="locomo")
    parser.add_argument("--questions", choices=["even", "odd", "all"], default="even", help="odd: only at the end")
    parser.add_argument("--conversations", type=int, default=0, metavar="N", help="the first N only")
    parser.add_argument("--policies", nargs="+", choices=[*POLICIES], default=[*POLICIES])
    args = parser.parse_args()
    talks = from_locomo(args.file) if args.form == "locomo" else from_common(args.file)
    asyncio.run(run(talks, most=args.conversations, half=args.questions, names=args.policies))


if __name__ == "__main__":
    main()

# /// script
# requires-python = ">=3.11"
# dependencies = ["chatbot-runtime[embeddings,local]", "bm25s", "PyStemmer"]
#
# [tool.uv.sources]
# chatbot-runtime = { path = ".." }
# ///
"""How many questions about a year a real model answers rightly from the product's own prompts.

    uv run benchmarks/answers.py --model local/DIR/model.gguf                  # 20 questions of each of three lives
    uv run benchmarks/answers.py --model ollama_chat/qwen3 --set benchmarks/sets/life_sixth.txt --questions 60

A year is lived as in `life.py`, with all hooks. Then the same questions are put to the model at temperature 0 in four
ways: by a real turn of the chat; with the five rows that bm25 finds, as plain dated lines; with those rows alone that
hold the answer or an older state of it; and without memory. An answer is right if it holds the right words, or denies
what was denied. Tokens are those of the whole prompt, seconds those of the whole answer, both in the median.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from forms import Case, Doc
from life import BEGIN, DAYS, SETS, Fact, facts, some, told, year
from living import Voice, runtime_in
from quality import bm25s

from chatbot.chat.memory_block import system_notice
from chatbot.config import ModelSettings
from chatbot.messages import Message, TextDelta
from chatbot.models import Model, open_model
from chatbot.runtime import Options, Runtime
from chatbot.stores.observation import Observation

PERSONA = "You are Ada."
LONGEST = 80
"""Tokens of an answer."""
_BY_WORDS = 5


@dataclass(frozen=True)
class Answer:
    """One answer: whether it holds the right words, and what it took."""

    is_right: bool
    tokens: int
    seconds: float
    text: str


def plain(rows: Sequence[Observation], question: str) -> list[Message]:
    """Return a prompt with these rows as plain dated lines, oldest first."""
    lines = [f"- {row.created_at.day} {row.created_at:%b %Y}: {row.user_text}" for row in rows]
    system = f"{PERSONA}\n\n{system_notice()}" if rows else PERSONA
    noted = "<memory-context>\n" + "\n".join(lines) + "\n</memory-context>\n\n" if rows else ""
    return [Message("system", system), Message("user", noted + question)]


async def answered(model: Model, messages: Sequence[Message], fact: Fact) -> Answer:
    """Ask the model once."""
    begun, text = time.monotonic(), ""
    async for delta in model.stream(messages, max_output_tokens=LONGEST):
        text += delta.text if isinstance(delta, TextDelta) else ""
    return Answer(_is_right(text, fact), await model.count_tokens(messages), time.monotonic() - begun, text)


async def by_turn(runtime: Runtime, model: Model, fact: Fact) -> Answer:
    """Ask by a turn of a session of its own, as a person does."""
    session = await runtime.new_session()
    assert session is not None
    chat = runtime.chat(session)
    prompt, _ = await chat.dry_run(fact.question)
    begun = time.monotonic()
    receipt = await chat.turn(fact.question)
    seconds = time.monotonic() - begun
    await runtime.leave(session)
    return Answer(_is_right(receipt.reply, fact), await model.count_tokens(prompt.messages), seconds, receipt.reply)


def _is_right(text: str, fact: Fact) -> bool:
    """Return whether an answer holds the right words from the beginning of a word on; of what was denied, or a no."""
    plain_text = " ".join(text.lower().split())
    is_no = fact.kind == "denied" and re.match(r"no\b", plain_text) is not None
    return is_no or any(re.search(rf"(?<!\w){re.escape(words)}", plain_text) for words in fact.right)


async def measured(path: Path, name: str, questions: int, others: int) -> dict[str, list[Answer]]:
    """Live a year, and ask at its end."""
    found, voice, clock = facts(path, "all"), Voice(), [BEGIN]
    answers: dict[str, list[Answer]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        async with runtime_in(Path(folder), voice, lambda: clock[0]) as runtime:
            await year(runtime, voice, told(found, others), clock)
            clock[0] = BEGIN + timedelta(days=DAYS + 1)
            await runtime.memory.memory("chat").embed_memories()
            rows = [row for row in await runtime.memory.memory("chat").every() if row.type == "exchange"][::-1]
        find = bm25s(Case(clock[0], [Doc(None, row.created_at, row.user_text) for row in rows], []), _BY_WORDS)
        options = Options(config=Path(folder) / "config.toml", identity="ada")
        async with (
            open_model(ModelSettings(name=name, temperature=0.0, max_output_tokens=LONGEST, timeout_s=600)) as model,
            Runtime(options, model=model, clock=lambda: clock[0]) as asking,
        ):
            for fact in some(found, questions):
                words = sorted(await find([fact.question]))
                gold = [row for row in rows if row.user_text in {fact.first, fact.later}]
                answers["the product"].append(await by_turn(asking, model, fact))
                for way, shown in (("bm25", [rows[at] for at in words]), ("the right rows", gold), ("no memory", [])):
                    answers[way].append(await answered(model, plain(shown, fact.question), fact))
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a model's name, such as local/DIR/model.gguf")
    parser.add_argument("--set", type=Path, action="append", help="a file of facts; repeat it for more")
    parser.add_argument("--questions", type=int, default=20, help="questions of each set")
    parser.add_argument("--others", type=int, default=200, help="other turns around the facts")
    parser.add_argument("--show", action="store_true", help="print wrong answers of the product")
    given = parser.parse_args()
    sets = given.set or [SETS / f"life_{name}.txt" for name in ("fourth", "fifth", "sixth")]
    together: dict[str, list[Answer]] = defaultdict(list)
    for path in sets:
        found = asyncio.run(measured(path, given.model, given.questions, given.others))
        for way, answers in found.items():
            together[way] += answers
            print(f"{path.stem:14} {summary(way, answers)}", flush=True)
    for way, answers in together.items():
        print(f"{'together':14} {summary(way, answers)}")
    for each in together["the product"] if given.show else ():
        if not each.is_right:
            print(f"wrong: {each.text!r}")


def summary(way: str, answers: Sequence[Answer]) -> str:
    """One line about one way to ask."""
    tokens = statistics.median(each.tokens for each in answers)
    seconds = statistics.median(each.seconds for each in answers)
    right = sum(each.is_right for each in answers)
    return f"{way:16} {right:3} of {len(answers):3} right, {tokens:5.0f} tokens, {seconds:5.1f} s"


if __name__ == "__main__":
    main()

# /// script
# requires-python = ">=3.11"
# dependencies = ["chatbot-runtime[embeddings]"]
#
# [tool.uv.sources]
# chatbot-runtime = { path = ".." }
# ///
"""Count the facts of a year that the memory block has right at its end, and those that it still has outdated.

    uv run benchmarks/life.py                     # 60 facts, of which 20 change and 10 are denied; default settings
    uv run benchmarks/life.py --set benchmarks/sets/life_third.txt
    uv run benchmarks/life.py --talk benchmarks/sets/other_talk.txt  # among what people really type
    uv run benchmarks/life.py --questions 20      # 20 of them, each in a turn: what its prompt held
    uv run benchmarks/life.py --half seen --show  # the half that may be used for tuning, with all errors

A person states the facts of `sets/life.txt` in a chat with all its hooks, four turns a session, among other talk;
changes follow some months later. At the end each question begins a session of its own, and the memory block of its
prompt is read; its notes are in the order in which they were said. A fact is right if a note has the right words. It is
outdated if a note has the outdated words without the right ones, except a line of the profile that says until when it
was true. It is stale if, besides, no later note has the right words.
"""

from __future__ import annotations

import argparse
import asyncio
import html
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from living import Line, Voice, begin, leave, runtime_in

from chatbot.chat.conversation_memory import ConversationMemory
from chatbot.config import AgentSettings
from chatbot.messages import without_blocks
from chatbot.runtime import Runtime

KINDS = ("holds", "changed", "denied")
SETS = Path(__file__).parent / "sets"
BEGIN = datetime(2025, 1, 1, 9, tzinfo=UTC)
DAYS = 365
_A_SESSION = 4
_ENDED = re.compile(r" \((?:from .* until .*|stated for .*, corrected since)\)$")
REPLIES = ("Thanks for telling me.", "I see.", "Good to know!", "All right.", "Understood.", "Oh, tell me more.")
_THINGS = ("soup", "bread", "curry", "stew", "salad", "risotto", "pancakes", "dumplings", "granola", "gnocchi")
_TOPICS = ("volcanoes", "glaciers", "comets", "bees", "tides", "fonts", "bridges", "clocks", "enzymes", "maps")
_OTHER = (
    "How long does {thing} keep in the fridge?",
    "What goes well with {thing} on a cold day?",
    "Explain {topic} to me in three sentences, please.",
    "Which book about {topic} would you recommend to a beginner?",
    "The {thing} in the canteen was rather salty at lunch.",
    "I watched a long documentary about {topic} last night.",
    "Why is {topic} research so expensive, do you think?",
    "Somebody at the bus stop was talking about {topic} again.",
)


@dataclass(frozen=True)
class Fact:
    """A fact, the question about it, and its right and outdated words."""

    kind: str
    first: str
    later: str
    question: str
    right: tuple[str, ...]
    stale: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """Reading of the memory block about a fact: are its words there, and outdated ones?"""

    fact: Fact
    is_right: bool
    is_outdated: bool
    is_stale: bool
    block: str


def facts(path: Path, half: str) -> list[Fact]:
    """Return the facts of a set, or of a half of it: every other fact of each kind."""
    found: list[Fact] = []
    count: Counter[str] = Counter()
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and line[0] != "#":
            kind, first, later, question, right, stale = (part.strip() for part in line.split("|"))
            count[kind] += 1
            if half == "all" or (count[kind] % 2 == 1) is (half == "seen"):
                found.append(Fact(kind, first, later, question, _alternatives(right), _alternatives(stale)))
    return found


def _alternatives(words: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in words.split("/") if each.strip())


def lines_of_year(found: list[Fact], others: int, talk: Sequence[str] = ()) -> list[str]:
    """Return the lines of the year in order: facts in its first half, changes in its second, other talk throughout.

    Other talk is taken by chance from the lines of `talk`; without them it is made up from a few forms.
    """
    chance = random.Random(4)
    said = [(chance.uniform(0, 0.45), fact.first) for fact in found]
    said += [(chance.uniform(0.55, 0.95), fact.later) for fact in found if fact.later]
    other = random.Random(6).sample(talk, others) if talk else [_made_up(chance) for _ in range(others)]
    said += [(number / others, text) for number, text in enumerate(other)]
    return [text for _, text in sorted(said)]


def _made_up(chance: random.Random) -> str:
    return chance.choice(_OTHER).format(thing=chance.choice(_THINGS), topic=chance.choice(_TOPICS))


async def year(
    runtime: Runtime, voice: Voice, said: list[str], clock: list[datetime], replies: Sequence[str] = REPLIES
) -> None:
    """Run the year: each session begins, has its turns, and ends, with all its hooks."""
    chance = random.Random(5)
    for start in range(0, len(said), _A_SESSION):
        clock[0] = BEGIN + timedelta(days=DAYS * start / len(said))
        session = await begin(runtime)
        chat = runtime.chat(session)
        for text in said[start : start + _A_SESSION]:
            clock[0] += timedelta(minutes=3)
            voice.begin(Line(text, chance.choice(replies)))
            await chat.turn(text)
        await leave(runtime, session)


async def ask(runtime: Runtime, fact: Fact, now: datetime) -> Answer:
    """Ask in a new session without a turn, and read the block of its prompt."""
    session = await runtime.new_session()
    assert session is not None
    memory = ConversationMemory.of(session, AgentSettings(), lambda: now)
    assert memory is not None
    block = (await memory.recall([fact.question], since=None, most_tokens=2_000)).text
    return read(fact, block)


def read(fact: Fact, block: str) -> Answer:
    """Judge a block, note by note, ignoring case."""
    notes = [html.unescape(each.lower()) for each in block.splitlines()[1:-1]]
    right = [at for at, each in enumerate(notes) if any(words in each for words in fact.right)]
    outdated = [
        at
        for at, each in enumerate(notes)
        if at not in right and any(words in each for words in fact.stale) and not _ENDED.search(each)
    ]
    stale = [at for at in outdated if not right or at > right[-1]]
    return Answer(fact, bool(right), bool(outdated), bool(stale), block)


def sample(found: list[Fact], most: int) -> list[Fact]:
    """Return about `most` facts, of each kind in proportion, evenly spread over its lines."""
    chosen = []
    for kind in KINDS:
        those = [fact for fact in found if fact.kind == kind]
        count = round(most * len(those) / len(found))
        chosen += [those[number * len(those) // count] for number in range(count)]
    return chosen


async def ask_in_turn(runtime: Runtime, voice: Voice, fact: Fact) -> Answer:
    """Ask in a turn of a new session, as a person does, and read the block of its prompt."""
    session = await begin(runtime)
    voice.begin(Line(fact.question, "Let me think."))
    await runtime.chat(session).turn(fact.question)
    asked = str(voice.model.prompts[0][-1].content)
    block = asked.removesuffix(without_blocks(asked)).strip()
    await leave(runtime, session)
    return read(fact, block)


async def measure(path: Path, half: str, others: int, questions: int = 0, talk: Sequence[str] = ()) -> list[Answer]:
    """Run a year with these facts, and ask about each at its end, or about `questions` of them in turns."""
    found, voice, clock = facts(path, half), Voice(), [BEGIN]
    with tempfile.TemporaryDirectory() as folder:
        async with runtime_in(Path(folder), voice, lambda: clock[0]) as runtime:
            await year(runtime, voice, lines_of_year(found, others, talk), clock)
            clock[0] = BEGIN + timedelta(days=DAYS + 1)
            await runtime.memory.memory("chat").embed_memories()
            if questions:
                return [await ask_in_turn(runtime, voice, fact) for fact in sample(found, questions)]
            return [await ask(runtime, fact, clock[0]) for fact in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", type=Path, default=SETS / "life.txt", help="file of facts")
    parser.add_argument("--half", choices=("all", "seen", "unseen"), default="all", help="every other fact of a kind")
    parser.add_argument(
        "--questions", type=int, default=0, help="number to ask in turns (0: read a block for every fact)"
    )
    parser.add_argument("--others", type=int, default=200, help="number of other turns")
    parser.add_argument("--talk", type=Path, help="file of other turns, a line each, instead of made-up ones")
    parser.add_argument("--show", action="store_true", help="print the blocks of wrong answers")
    given = parser.parse_args()
    talk = given.talk.read_text(encoding="utf-8").splitlines() if given.talk else ()
    answers = asyncio.run(measure(given.set, given.half, given.others, given.questions, talk))
    for kind in KINDS:
        print(summary(kind, [each for each in answers if each.fact.kind == kind]))
    print(summary("together", answers))
    for each in answers if given.show else ():
        if not each.is_right or each.is_outdated:
            print(f"\n{_fault(each)} {each.fact.question}\n{each.block}")


def summary(name: str, answers: list[Answer]) -> str:
    """Return a line about some answers."""
    right = sum(each.is_right for each in answers)
    outdated = sum(each.is_outdated for each in answers)
    stale = sum(each.is_stale for each in answers)
    clear = sum(each.is_right and not each.is_stale for each in answers)
    return (
        f"{name:8} {len(answers):3} facts: {right:3} right, {clear:3} right and not stale, {stale:3} stale, "
        f"{outdated:3} with what is outdated"
    )


def _fault(answer: Answer) -> str:
    faults = {
        "MISSED": not answer.is_right,
        "STALE": answer.is_stale,
        "OUTDATED": answer.is_outdated,
    }
    return " ".join(name for name, is_so in faults.items() if is_so)


if __name__ == "__main__":
    main()

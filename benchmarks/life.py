# /// script
# requires-python = ">=3.11"
# dependencies = ["chatbot-runtime[embeddings]"]
#
# [tool.uv.sources]
# chatbot-runtime = { path = ".." }
# ///
"""Count the facts of a year that the memory block has right at its end, and those that it still has outdated.

    uv run benchmarks/life.py                     # 60 facts, of which 20 change and 10 are denied; default settings
    uv run benchmarks/life.py --set benchmarks/sets/lives/55.txt  # 40 facts, among what that person types
    uv run benchmarks/life.py --questions 20      # 20 of them, each in a turn: what its prompt held
    uv run benchmarks/life.py --half seen --show  # the half that may be used for tuning, with all errors

A person states the facts of `sets/life.txt` in a chat with all its hooks, four turns a session, among 200 messages of
other talk: the person's own, if the set has some, and those of other people (`sets/other_talk.txt`). Changes follow
some months later. A set may also be a year of whole chats and questions about it (`sets/lives/71.txt`). At
the end each question begins a session of its own, and the memory block of its prompt is read; its notes are in the
order in which they were said. A fact is right if a note has the right words. It is outdated if a note has the outdated
words without the right ones, except a line of the profile that says until when it was true. It is stale if, besides,
no later note has the right words. Precision is the share of notes that have the right or the outdated words. Tokens
are a quarter of the characters of the block, in the median. Rows for small talk are notes a message that the set lists
as such, which needs no memory.
"""

import argparse
import asyncio
import html
import random
import re
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from clocked_runtime import Line, Voice, begin, leave, runtime_in

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
class Life:
    """A set: the facts, other messages of the same person, and those of them that need no memory."""

    facts: list[Fact]
    talk: list[str]
    small: list[str]
    chats: list[list[str]]
    """All messages of the year by session, if the set has them so."""

    def sessions(self, others: int) -> list[list[str]]:
        """Return the messages of the year by session, in order: facts in its first half, changes in its second.

        `others` stand throughout: the person's own, and then some of other people, chosen by chance.
        """
        if self.chats:
            return self.chats
        chance = random.Random(4)
        said = [(chance.uniform(0, 0.45), fact.first) for fact in self.facts]
        said += [(chance.uniform(0.55, 0.95), fact.later) for fact in self.facts if fact.later]
        strangers = (SETS / "other_talk.txt").read_text(encoding="utf-8").splitlines()
        other = [*self.talk, *chance.sample(strangers, max(0, others - len(self.talk)))][:others]
        chance.shuffle(other)
        said += [(number / others, text) for number, text in enumerate(other)]
        texts = [text for _, text in sorted(said)]
        return [texts[start : start + _A_SESSION] for start in range(0, len(texts), _A_SESSION)]


@dataclass(frozen=True)
class Answer:
    """Reading of the memory block about a fact: are its words there, and outdated ones?"""

    fact: Fact
    is_right: bool
    is_outdated: bool
    is_stale: bool
    notes: int
    about: int
    """Notes that have the right or the outdated words."""
    block: str


def read_life(path: Path, half: str = "all") -> Life:
    """Read a set, with all its facts or a half of them: every other fact of each kind."""
    life, count = Life([], [], [], []), Counter[str]()
    for line in path.read_text(encoding="utf-8").splitlines():
        kind, _, text = (part.strip() for part in line.partition("|"))
        if kind == "ask":  # about a year of chats: question and right words
            kind, text = "holds", f"||{text}|"
        if kind in KINDS:
            first, later, question, right, stale = (part.strip() for part in text.split("|"))
            count[kind] += 1
            if half == "all" or (count[kind] % 2 == 1) is (half == "seen"):
                life.facts.append(Fact(kind, first, later, question, _alternatives(right), _alternatives(stale)))
        elif line == "session":
            life.chats.append([])
        elif line.startswith("> "):
            life.chats[-1].append(line[2:])
        elif kind in {"talk", "small"}:
            (life.talk if kind == "talk" else life.small).append(text)
    return life


def _alternatives(words: str) -> tuple[str, ...]:
    return tuple(each.strip().lower() for each in words.split("/") if each.strip())


async def year(
    runtime: Runtime,
    voice: Voice,
    sessions: list[list[str]],
    clock: list[datetime],
    replies: Sequence[str] = REPLIES,
) -> None:
    """Run the year: each session begins, has its turns, and ends, with all its hooks."""
    chance = random.Random(5)
    for number, said in enumerate(sessions):
        clock[0] = BEGIN + timedelta(days=DAYS * number / len(sessions))
        session = await begin(runtime)
        chat = runtime.chat(session)
        for text in said:
            clock[0] += timedelta(minutes=3)
            voice.begin(Line(text, chance.choice(replies)))
            await chat.turn(text)
        await leave(runtime, session)


async def block_for(runtime: Runtime, message: str) -> str:
    """Return the memory block of a message in a new session, without a turn."""
    session = await runtime.new_session()
    assert session is not None
    memory = ConversationMemory.of(session, AgentSettings())
    assert memory is not None
    return (await memory.recall([message], since=None, most_tokens=2_000)).text


def notes_in(block: str) -> list[str]:
    """Return the notes of a block."""
    return block.splitlines()[1:-1]


def read(fact: Fact, block: str) -> Answer:
    """Judge a block, note by note, ignoring case."""
    notes = [html.unescape(each.lower()) for each in notes_in(block)]
    right = [at for at, each in enumerate(notes) if any(words in each for words in fact.right)]
    old = [at for at, each in enumerate(notes) if at not in right and any(words in each for words in fact.stale)]
    outdated = [at for at in old if not _ENDED.search(notes[at])]
    stale = [at for at in outdated if not right or at > right[-1]]
    return Answer(fact, bool(right), bool(outdated), bool(stale), len(notes), len(right) + len(old), block)


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


async def measure(life: Life, others: int, questions: int = 0) -> tuple[list[Answer], int]:
    """Run a year of this life, and ask about each fact at its end, or about `questions` of them in turns.

    Return the answers, and the number of notes for the person's small talk.
    """
    voice, clock = Voice(), [BEGIN]
    with tempfile.TemporaryDirectory() as folder:
        async with runtime_in(Path(folder), voice, lambda: clock[0]) as runtime:
            await year(runtime, voice, life.sessions(others), clock)
            clock[0] = BEGIN + timedelta(days=DAYS + 1)
            await runtime.memory.memory("chat").embed_memories()
            idle = sum([len(notes_in(await block_for(runtime, each))) for each in life.small])
            if questions:
                return [await ask_in_turn(runtime, voice, fact) for fact in sample(life.facts, questions)], idle
            blocks = [await block_for(runtime, fact.question) for fact in life.facts]
            return [read(fact, block) for fact, block in zip(life.facts, blocks, strict=True)], idle


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", type=Path, default=SETS / "life.txt", help="file of facts")
    parser.add_argument("--half", choices=("all", "seen", "unseen"), default="all", help="every other fact of a kind")
    parser.add_argument(
        "--questions", type=int, default=0, help="number to ask in turns (0: read a block for every fact)"
    )
    parser.add_argument("--others", type=int, default=200, help="number of other turns")
    parser.add_argument("--show", action="store_true", help="print the blocks of wrong answers")
    given = parser.parse_args()
    life = read_life(given.set, given.half)
    answers, idle = asyncio.run(measure(life, given.others, given.questions))
    for kind in KINDS:
        print(summary(kind, [each for each in answers if each.fact.kind == kind]))
    print(summary("together", answers))
    shown = sum(each.notes for each in answers)
    tokens = statistics.median(len(each.block) / 4 for each in answers)
    precision = sum(each.about for each in answers) / shown if shown else 0.0
    print(f"precision {precision:.2f}, {tokens:.0f} tokens in the median")
    if life.small:
        print(f"small talk: {idle / len(life.small):.2f} rows a message")
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

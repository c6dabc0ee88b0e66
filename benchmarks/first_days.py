# /// script
# requires-python = ">=3.11"
# dependencies = ["chatbot-runtime[embeddings]"]
#
# [tool.uv.sources]
# chatbot-runtime = { path = ".." }
# ///
"""Count what the memory block has right after the first days, when memory holds one to twenty messages.

    uv run benchmarks/first_days.py           # 32 people, default settings
    uv run benchmarks/first_days.py --show    # with the questions that are not answered

A person tells of themselves in `said` lines of `sets/first_days.txt`, among some `talk`, three messages a session.
Three days later each `ask` and each `small` begins a session of its own. A question is right if its block has the
words of the answer; two ask for passwords, which are redacted before they are stored. Rows for small talk are notes
a message that needs no memory. Tokens are a quarter of the characters of a block, in the median.
"""

import argparse
import asyncio
import html
import statistics
import sys
import tempfile
from collections import defaultdict
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from clocked_runtime import AGENT, Line, Voice, runtime_in
from life import BEGIN, SETS, block_for, notes_in

Person = dict[str, list[list[str]]]
"""The fields of a person's lines, by the word that begins them; `told` has those of `said` and `talk`, in order."""
SIZES = ((1, 1), (2, 4), (5, 9), (10, 20))


def read_people(path: Path) -> list[Person]:
    """Read the set."""
    people: list[Person] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        kind, *fields = (each.strip() for each in line.split(" | "))
        if kind == "person":
            people.append(defaultdict(list))
        elif kind:
            people[-1]["told" if kind in {"said", "talk"} else kind].append(fields)
    return people


async def blocks_of(person: Person, folder: Path) -> list[str]:
    """Return the blocks of a person's questions and then of their small talk."""
    voice, clock = Voice(), [BEGIN]
    async with runtime_in(folder, voice, lambda: clock[0]) as runtime:
        for start in range(0, len(person["told"]), 3):
            chat = runtime.chat(await runtime.new_session())
            for (text,) in person["told"][start : start + 3]:
                voice.begin(Line(text, "I see."))
                await chat.turn(text)
                clock[0] += timedelta(minutes=5)
            clock[0] += timedelta(hours=9)
        await runtime.memory.memory(AGENT).embed_memories()
        clock[0] += timedelta(days=3)
        return [await block_for(runtime, each[0]) for each in person["ask"] + person["small"]]


async def run(people: list[Person], *, show: bool) -> None:
    """Run all people and print a line for each size of memory."""
    found: list[tuple[int, bool, int, float]] = []
    idle: list[tuple[int, int]] = []
    for person in people:
        with tempfile.TemporaryDirectory() as folder:
            blocks = await blocks_of(person, Path(folder))
        size = len(person["told"])
        for (question, words), block in zip(person["ask"], blocks, strict=False):
            is_right = words.lower() in html.unescape(block).lower()
            found.append((size, is_right, len(notes_in(block)), len(block) / 4))
            if show and not is_right:
                print(f"{size} messages: {question} [{words}]\n{block}\n")
        idle += [(size, len(notes_in(block))) for block in blocks[len(person["ask"]) :]]
    for least, most in (*SIZES, (1, 20)):
        asked = [each for each in found if least <= each[0] <= most]
        small = [notes for size, notes in idle if least <= size <= most]
        tokens = statistics.median(each[3] for each in asked) if asked else 0
        print(
            f"{least:2}-{most:<2} messages: {sum(each[1] for each in asked):3} of {len(asked):3} right, "
            f"{sum(each[2] for each in asked) / max(len(asked), 1):.1f} notes, {tokens:.0f} tokens, "
            f"{sum(small) / max(len(small), 1):.2f} rows for small talk"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", type=Path, default=SETS / "first_days.txt", help="file of people")
    parser.add_argument("--people", type=int, default=0, help="number of people (0: all)")
    parser.add_argument("--show", action="store_true", help="print the blocks of questions that are not answered")
    given = parser.parse_args()
    people = read_people(given.set)
    asyncio.run(run(people[: given.people or len(people)], show=given.show))


if __name__ == "__main__":
    main()

# /// script
# requires-python = ">=3.11"
# dependencies = ["chatbot-runtime[embeddings]"]
#
# [tool.uv.sources]
# chatbot-runtime = { path = ".." }
# ///
"""Cost of the default recall, the local encoder included: CPU for a question, and memory of the process.

    uv run benchmarks/footprint.py --rows 10000

The rows are written at once and embedded by one process. The next one that asks indexes their words. A later one opens
the memory, as each `chatbot ask` does, asks its first question, and then as many different ones as `--questions` says.
The goals at 10,000 rows: 600 ms of CPU for a first question, 30 ms in the median for the others, 150 MB at most.
"""

import argparse
import asyncio
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from chatbot.memory import MemorySystem
from chatbot.memory.writing import Draft
from chatbot.models.local_encoder import LocalEmbedder

AGENT = "footprint"
_WHO = ["My neighbour", "The plumber", "Aunt Vera", "Our landlord", "The vet", "Grandpa", "A colleague", "The coach"]
_DID = ["repaired", "sold", "lost", "painted", "borrowed", "forgot", "recommended", "cleaned", "hid", "broke"]
_WHAT = [
    "bicycle",
    "oven",
    "kayak",
    "telescope",
    "passport",
    "violin",
    "lantern",
    "quilt",
    "printer",
    "boiler",
    "canoe",
    "stamp album",
]
_WHERE = [
    "in the cellar",
    "at the lake",
    "near the station",
    "in Porto",
    "behind the church",
    "at work",
    "on the balcony",
]
_WHEN = ["in spring", "last summer", "before the wedding", "on a Sunday", "during the storm", "after lunch"]


def opened(folder: Path) -> MemorySystem:
    settings = {"observations": {"cache": str(folder / "cache")}}
    return MemorySystem(folder / "memory", settings=settings, embedder=LocalEmbedder())


def drafts(rows: int) -> list[Draft]:
    """Return that many rows of about ten words."""
    chance = random.Random(6)
    parts = (_WHO, _DID, _WHAT, _WHERE, _WHEN)
    said = ["{} {} the {} {} {}, number {}.".format(*map(chance.choice, parts), number) for number in range(rows)]
    return [Draft(title=text) for text in said]


async def write(folder: Path, rows: int) -> None:
    """Remember the rows, and embed them all."""
    async with opened(folder) as memory:
        await memory.memory(AGENT).remember_all(drafts(rows))
        await memory.memory(AGENT).embed_memories()


def most_memory_mb() -> float:
    """Return the peak memory of this process. On Linux `ru_maxrss` would include that of its parent."""
    told = Path("/proc/self/status")
    if told.exists():
        return int(told.read_text(encoding="ascii").split("VmHWM:")[1].split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def ask(folder: Path, questions: int) -> None:
    """Print the time of the first question and of others, and the peak memory."""
    chance = random.Random(7)
    async with opened(folder) as memory:
        memories = memory.memory(AGENT)
        began = time.process_time()
        await memories.recall("Who mended the stove?")
        first = time.process_time() - began
        taken = []
        for _ in range(questions):
            text = f"What became of the {chance.choice(_WHAT)} {chance.choice(_WHERE)} {chance.choice(_WHEN)}?"
            began = time.process_time()
            await memories.recall(text)
            taken.append(time.process_time() - began)
        missing = (await memories.vector_stats()).missing
    most = most_memory_mb()
    p95 = statistics.quantiles(taken, n=20)[-1]
    print(
        f"first question {1e3 * first:.0f} ms of CPU, then {1e3 * statistics.median(taken):.1f} ms in the median, ",
        end="",
    )
    print(f"{1e3 * p95:.1f} ms at p95; {most:.0f} MB at most; {missing} rows without a vector")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--questions", type=int, default=50)
    parser.add_argument("--ask-in", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.ask_in:
        asyncio.run(ask(given.ask_in, given.questions))
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(write(Path(folder), given.rows))
        for said, questions in (("the words are indexed", 2), ("a later process", given.questions)):
            print(f"{said}: ", end="", flush=True)
            subprocess.run([sys.executable, __file__, "--ask-in", folder, "--questions", str(questions)], check=True)


if __name__ == "__main__":
    main()

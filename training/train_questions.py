# /// script
# requires-python = ">=3.11"
# dependencies = ["chatbot-runtime[embeddings]"]
#
# [tool.uv.sources]
# chatbot-runtime = { path = ".." }
# ///
"""Train the map that moves a question's vector towards the statements that answer it.

    uv run training/train_questions.py             # write chatbot/models/data/questions.json, in about two minutes
    uv run training/train_questions.py --report    # what is found by people whose lines were not trained on, five folds
    uv run training/train_questions.py --held-out  # the same for training/held_out, which nothing is trained on

A line of `questions.tsv` is a person, a language, what the person said, and what they asked long after, separated by
tabs. The score of a statement for a question is `(W q + M q) · s`, of vectors whose parts have length 1, with the usual
weights W of these parts in a question. The matrix M minimizes the cross-entropy of the right one among all statements
of its person (van den Oord et al. 2018, "Representation learning with contrastive predictive coding"), at
`TEMPERATURE`, plus `PENALTY` halves of the square of M. The best approximation of M by `RANK` products of two vectors
is kept, in whole numbers of eight bits.

Nothing is drawn by chance: the same lines give the same map.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from kept import digest, product

from chatbot.memory.meaning import embedded_text
from chatbot.models.local_encoder import ANY, ENGLISH, NAME, PART_WEIGHTS, LocalEmbedder
from chatbot.models.minilm import low_rank
from chatbot.models.multilingual import QUESTIONS, question_map
from chatbot.stores.observation import Observation

HERE = Path(__file__).parent
LINES = HERE / "questions.tsv"
FOLDS = 5
STEPS = 30
RANK = 32
TEMPERATURE = 0.1
PENALTY = 0.05
CURVATURE = 8.0
"""An estimate of the largest curvature of the cross-entropy, for the length of steps."""
WEIGHTS = np.repeat(np.array((*PART_WEIGHTS, 1), "f4"), (ENGLISH, ANY, 1))
NOW = datetime(2026, 1, 1, tzinfo=UTC)
Numbers = NDArray[Any]


class Person(NamedTuple):
    """The questions and statements of one person, in pairs, a row of numbers each."""

    questions: Numbers
    statements: Numbers


def read(path: Path) -> list[list[tuple[str, str, str]]]:
    """Read the lines of each person: the language, what they said, and what they asked."""
    people = defaultdict(list)
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line and not line.startswith("#"):
            person, *rest = line.split("\t")
            if len(rest) != 3:
                raise SystemExit(f"{path.name}:{number}: a line is person, language, statement and question, by tabs")
            people[person].append((rest[0], rest[1], rest[2]))
    return [*people.values()]


async def embed(people: Sequence[Sequence[tuple[str, str, str]]]) -> list[Person]:
    """Return the vectors of each person's pairs: parts of length 1, or zeros for MiniLM's, and no marker."""
    found = []
    async with LocalEmbedder() as embedder:
        for pairs in people:
            texts = [*(embedded_text(row_of(said)) for _, said, _ in pairs), *(asked for *_, asked in pairs)]
            vectors = math.sqrt(2) * np.array((await embedder.embed(texts)).vectors, "f4")  # parts of length 1
            vectors[:, -1] = 0
            found.append(Person(vectors[len(pairs) :], vectors[: len(pairs)]))
    return found


def row_of(said: str) -> Observation:
    """Return the memory of a message."""
    return Observation(id=str(UUID(int=0)), created_at=NOW, updated_at=NOW, type="exchange", user_text=said)


def errors(person: Person, matrix: Numbers) -> Numbers:
    """Return the probabilities of the statements for each question, less 1 for the right one."""
    scores = (person.questions * WEIGHTS + person.questions @ matrix) @ person.statements.T / TEMPERATURE
    likely: Numbers = np.exp(scores - scores.max(axis=1, keepdims=True))
    likely /= likely.sum(axis=1, keepdims=True)
    likely[np.diag_indices_from(likely)] -= 1
    return likely


def fit(people: Sequence[Person]) -> Numbers:
    """Return the matrix M: Nesterov's steps from zero."""
    size, pairs = people[0].questions.shape[1], sum(len(each.questions) for each in people)
    here = before = np.zeros((size, size), "f4")
    for step in range(STEPS):
        ahead = here + step / (step + 3) * (here - before)
        slope = PENALTY * ahead
        for each in people:
            slope += each.questions.T @ errors(each, ahead) @ each.statements / (TEMPERATURE * pairs)
        here, before = ahead - slope / (CURVATURE + PENALTY), here
    return here


def train(people: Sequence[Person]) -> dict[str, Any]:
    """Train the map; return what is kept of it."""
    matrix = fit(people) / WEIGHTS[:, None]  # as questions are moved when they are weighted
    return {"encoder": NAME, "lines": digest([LINES, Path(__file__)])} | product(matrix, RANK)


def places(people: Sequence[Person], found: tuple[Numbers, Numbers] | None) -> list[int]:
    """Return the place of the right statement for each question, from 0, with a map or without."""
    every = []
    for each in people:
        asked = each.questions * WEIGHTS
        if found is not None:
            asked += asked @ found[0] @ found[1]
        scores = asked @ each.statements.T
        every += (scores > scores.diagonal()[:, None]).sum(axis=1).tolist()
    return every


def show(name: str, found: Sequence[int]) -> None:
    """Print the shares of questions whose statement is the first, among three, and among six."""
    shares = "  ".join(f"{np.mean([place < top for place in found]):.3f}" for top in (1, 3, 6))
    print(f"{name:20} first, among three, among six: {shares}  ({len(found)} questions)")


def report(people: Sequence[Person]) -> None:
    """Print what is found by people whose lines were not trained on: every fifth person, by a map of the others."""
    mapped, without = list[int](), list[int]()
    for fold in range(FOLDS):
        unseen = people[fold::FOLDS]
        kept = train([each for number, each in enumerate(people) if number % FOLDS != fold])
        mapped += places(unseen, low_rank(kept))
        without += places(unseen, None)
    show("without a map", without)
    show("with a map", mapped)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--report", action="store_true", help="judge people whose lines were not trained on, five folds"
    )
    parser.add_argument("--held-out", action="store_true", help="judge the lines of training/held_out by the kept map")
    given = parser.parse_args()
    people = asyncio.run(embed(read(HERE / "held_out" / LINES.name if given.held_out else LINES)))
    if given.report:
        report(people)
    elif given.held_out:
        show("without a map", places(people, None))
        show("with a map", places(people, question_map()))
    else:
        QUESTIONS.write_text(json.dumps(train(people), indent=1) + "\n", encoding="utf-8")
        print(f"{QUESTIONS}: {QUESTIONS.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

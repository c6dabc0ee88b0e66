# /// script
# requires-python = ">=3.11"
# dependencies = ["chatbot-runtime[embeddings]"]
#
# [tool.uv.sources]
# chatbot-runtime = { path = ".." }
# ///
"""Train the heads of `chatbot/models/multilingual.py` from the labelled lines beside this file.

    uv run training/train.py             # write chatbot/models/data/heads.json, in seconds
    uv run training/train.py --report    # how well heads judge lines that they were not trained on, by language
    uv run training/train.py --held-out  # the same for training/held_out, which nothing is trained on

A file holds the lines of one judgement: label, language and text, separated by tabs. A head is trained on all lines of
its file; `states_something` also on the first `STATEMENTS` of each person in `english_questions.tsv`. Lines of a label
in a language count together by the square root of how many there are, so that a few lines of a new language are heard.

Thresholds come from lines that were not trained on: each fifth is judged by a head trained on the rest, and a threshold
is the score that only a `wrong` share of the lines with another label reach. Nothing is drawn by chance: the same lines
give the same heads.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from kept import digest
from train_questions import read as read_people

from chatbot.models.multilingual import ENCODER, PATH, MultilingualEncoder, heads
from chatbot.stores.records import vector

HERE = Path(__file__).parent
QUESTIONS = HERE / "english_questions.tsv"
STATEMENTS = 3
FOLDS = 5
STEPS = 200
PENALTY = 1e-3
"""Weight of the squared length of a head's weights, per line."""
Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Line(NamedTuple):
    """A text with its label and language."""

    label: str
    language: str
    text: str


class HeadPlan(NamedTuple):
    """The label that a head says yes to, and the share of wrong alarms at each of its thresholds."""

    label: str
    wrong: tuple[float, ...]


PLANS = {
    "needs_memory": HeadPlan("yes", (0.2,)),
    "asks_the_bot": HeadPlan("yes", (0.05,)),
    "states_something": HeadPlan("yes", (0.25,)),
    "orders_a_model": HeadPlan("order", (0.10, 0.01)),
    "english": HeadPlan("en", (0.09,)),
}
"""The heads, by the names of their files; `english` is trained on the languages of all lines in files."""
FILES = [HERE / f"{name}.tsv" for name in sorted(PLANS) if name != "english"]


def read(path: Path) -> list[Line]:
    """Read the lines of a file; empty ones and those that begin with # are none."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        label, language, text = (*line.split("\t", 2), "", "")[:3]
        if not text:
            raise SystemExit(f"{path.name}:{number}: a line is label, language and text, separated by tabs")
        found.append(Line(label, language, text))
    return found


def statements() -> list[Line]:
    """Return the first statements of each person who later asks about them."""
    return [Line("yes", *each[:2]) for person in read_people(QUESTIONS) for each in person[:STATEMENTS]]


def weights_of(lines: Sequence[Line], truth: Flags) -> Numbers:
    """Return how much each line counts for each head: yes and no alike, each by the square roots of its languages."""
    languages = np.array([line.language for line in lines])
    weights = np.zeros(truth.shape)
    for language in sorted(set(languages)):
        of = (languages == language)[:, None]
        for side in (of & truth, of & ~truth):
            weights += side * np.maximum(side.sum(axis=0), 1) ** -0.5
    for side in (truth, ~truth):
        weights /= np.where(side, 2 * (weights * side).sum(axis=0), 1)
    return weights


def fit(vectors: Numbers, truth: Flags, weights: Numbers) -> Numbers:
    """Return the weights of logistic regressions, a column each, the bias last: Nesterov's steps from zero."""
    rows = np.hstack([vectors, np.ones((len(vectors), 1))])  # of length √2, so no curvature is above a half
    penalty = np.full((rows.shape[1], 1), PENALTY)
    penalty[-1] = 0
    here = before = np.zeros((rows.shape[1], truth.shape[1]))
    for step in range(STEPS):
        ahead = here + step / (step + 3) * (here - before)
        errors = 1 / (1 + np.exp(-rows @ ahead)) - truth
        here, before = ahead - (rows.T @ (weights * errors) + penalty * ahead) / (0.5 + PENALTY), here
    return here


def unseen_scores(lines: Sequence[Line], vectors: Numbers, truth: Flags) -> Numbers:
    """Return the scores of each line by heads that were trained on the other folds, which its text chooses."""
    digests = (hashlib.sha256(line.text.encode()).digest() for line in lines)
    folds = np.array([int.from_bytes(digest[:4]) % FOLDS for digest in digests])
    scores = np.zeros(truth.shape)
    for fold in range(FOLDS):
        rest = folds != fold
        heads = fit(vectors[rest], truth[rest], weights_of([lines[at] for at in np.flatnonzero(rest)], truth[rest]))
        scores[~rest] = vectors[~rest] @ heads[:-1] + heads[-1]
    return scores


def truth_of(plan: HeadPlan, lines: Sequence[Line]) -> Flags:
    """Return which lines a head should say yes to, as a column."""
    return np.array([[line.label == plan.label] for line in lines])


class Trainer:
    """The lines of all files with their vectors, each made once."""

    def __init__(self) -> None:
        self._encoder = MultilingualEncoder()
        self.lines = {path.stem: read(path) for path in FILES}
        self._vectors = {name: self._embedded(lines) for name, lines in self.lines.items()}
        every = [line for lines in self.lines.values() for line in lines]
        self._vectors["english"] = np.concatenate(list(self._vectors.values()))
        self.lines["english"] = [Line(line.language, line.language, line.text) for line in every]
        self._add("states_something", statements())

    def _add(self, name: str, lines: list[Line]) -> None:
        self.lines[name] += lines
        self._vectors[name] = np.concatenate([self._vectors[name], self._embedded(lines)])

    def train(self) -> dict[str, Any]:
        """Train all heads; return what is kept of them."""
        kept = {}
        for name, plan in PLANS.items():
            lines, vectors = self.lines[name], self._vectors[name]
            truth = truth_of(plan, lines)
            trained = fit(vectors, truth, weights_of(lines, truth))
            others = unseen_scores(lines, vectors, truth)[~truth]
            kept[name] = {
                "thresholds": [round(float(np.quantile(others, 1 - wrong)), 2) for wrong in plan.wrong],
                "bias": round(float(trained[-1, 0]), 4),
                "weights": packed(trained[:-1, 0]),
            }
        return {"encoder": ENCODER, "lines": digest([*FILES, QUESTIONS, Path(__file__)]), "heads": kept}

    def report(self) -> None:
        """Print how heads judge the lines when they were not trained on them."""
        kept = self.train()["heads"]
        for name, plan in PLANS.items():
            truth = truth_of(plan, self.lines[name])
            scores = unseen_scores(self.lines[name], self._vectors[name], truth)
            show(name, kept[name]["thresholds"], self.lines[name], truth[:, 0], scores[:, 0])

    def held_out(self) -> None:
        """Print what the kept heads make of lines that nothing is trained on."""
        for name in (path.stem for path in sorted((HERE / "held_out").glob("*.tsv")) if path.stem in PLANS):
            lines = read(HERE / "held_out" / f"{name}.tsv")
            found = np.array([heads().scores(vector(part))[name] for part in self._embedded(lines)])
            show(name, heads().thresholds[name], lines, truth_of(PLANS[name], lines)[:, 0], found)

    def _embedded(self, lines: Sequence[Line]) -> Numbers:
        """Return the vectors of the lines' texts, as the product makes them."""
        return np.array(self._encoder.encode([line.text for line in lines]), "f8")


def packed(numbers: Numbers) -> str:
    """Return numbers as text: half floats in base64."""
    return b64encode(numbers.astype("<f2").tobytes()).decode()


def show(name: str, thresholds: Sequence[float], lines: Sequence[Line], truth: Flags, scores: Numbers) -> None:
    """Print found and wrong at each threshold, in all and by language."""
    for threshold in thresholds:
        cells = []
        for language in ("", *sorted({line.language for line in lines})):
            of = np.array([language in ("", line.language) for line in lines])
            yes, no = scores[of & truth] >= threshold, scores[of & ~truth] >= threshold
            cells.append(f"{language or 'all'} {yes.sum()}/{len(yes)} wrong {no.sum()}/{len(no)}")
        print(f"{name:24} from {threshold:5.2f}  {'; '.join(cells)}")


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", action="store_true", help="judge lines that were not trained on, five folds")
    parser.add_argument(
        "--held-out", action="store_true", help="judge the lines of training/held_out by the kept heads"
    )
    given = parser.parse_args()
    trainer = Trainer()
    if given.report:
        trainer.report()
    elif given.held_out:
        trainer.held_out()
    else:
        PATH.write_text(json.dumps(trainer.train(), indent=1) + "\n", encoding="utf-8")
        print(f"{PATH}: {PATH.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

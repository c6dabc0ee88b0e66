# /// script
# requires-python = ">=3.11"
# dependencies = ["chatbot-runtime[embeddings]", "torch>=2.9"]
#
# [tool.uv.sources]
# chatbot-runtime = { path = ".." }
# ///
"""Train the small changes of MiniLM by which a question lies nearer to the statement that answers it.

    uv run training/train_encoder.py    # write chatbot/models/data/minilm.json, in twenty minutes of two cores

The lines are `english_questions.tsv` and the English ones of `questions.tsv`. The score of a statement for a question
is the cosine of their vectors; what is minimized is the cross-entropy of the right statement among all statements and
other questions of `PEOPLE` people, and `SMALL` messages that need no memory or state nothing (van den Oord et al. 2018,
"Representation learning with contrastive predictive coding"), at `TEMPERATURE`. To each matrix of the layers from
`FIRST` on a product of rank `RANK` is added (Hu et al. 2021, "LoRA: low-rank adaptation of large language models");
nothing else changes.

Chance is seeded, but the last digits of sums differ between machines, and so do the changes, a little. Train the map of
questions after this (`train_questions.py`), as it works on these vectors.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from kept import digest, product
from train_questions import LINES, read, row_of

from chatbot.memory.meaning import embedded_text
from chatbot.models import minilm
from chatbot.models.local_encoder import MINILM_NAME
from chatbot.models.weights import CHANGES, MINILM

HERE = Path(__file__).parent
ENGLISH_LINES = HERE / "english_questions.tsv"
SMALL_LINES = [HERE / "needs_memory.tsv", HERE / "states_something.tsv"]
FIRST = 2
RANK = 8
EPOCHS = 2
PEOPLE = 4
SMALL = 40
TEMPERATURE = 0.05
RATE = 1e-3
WARM_UP = 10
"""Steps in which the rate rises to `RATE`; then it falls to zero."""
LONGEST = 128
"""Tokens of a text."""
_AT_ONCE = 16
Tensor = torch.Tensor
Tokens = Sequence[int]


class Encoder:
    """MiniLM, with the changes that are trained."""

    def __init__(self) -> None:
        published = minilm.published_weights(MINILM.check())
        self._weights = {name: torch.tensor(each.astype("f4")) for name, each in published.items()}
        self._weights[minilm.WORDS] *= self._weights.pop(minilm.WORDS_SCALE)
        self.changes: dict[str, tuple[Tensor, Tensor]] = {}
        for name in (
            f"encoder.layer.{layer}.{each}.weight" for layer in range(FIRST, minilm.LAYERS) for each in minilm.MATRICES
        ):
            inputs, outputs = self._weights[name].shape
            down, up = torch.randn(inputs, RANK) / math.sqrt(inputs), torch.zeros(RANK, outputs)
            self.changes[name] = down.requires_grad_(), up.requires_grad_()
        self._before: dict[tuple[int, ...], Tensor] = {}
        """Texts as the layers before `FIRST` leave them."""

    def vectors(self, texts: Sequence[Tokens]) -> Tensor:
        """Return a vector of length 1 for each text."""
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        found: dict[int, Tensor] = {}
        for start in range(0, len(order), _AT_ONCE):
            some = order[start : start + _AT_ONCE]
            x = torch.nn.utils.rnn.pad_sequence([self._unchanged(texts[at]) for at in some], batch_first=True)
            there = torch.arange(x.shape[1]) < torch.tensor([[min(len(texts[at]), LONGEST)] for at in some])
            for layer in range(FIRST, minilm.LAYERS):
                x = self._layer(x, layer, there)
            means = (x * there[:, :, None]).sum(dim=1) / there.sum(dim=1, keepdim=True)
            found |= zip(some, functional.normalize(means, dim=-1), strict=True)
        return torch.stack([found[at] for at in range(len(texts))])

    def _unchanged(self, text: Tokens) -> Tensor:
        key = tuple(text[:LONGEST])
        if key not in self._before:
            with torch.no_grad():
                x = self._weights[minilm.WORDS][list(key)][None]
                x = x + self._weights[minilm.POSITIONS][: len(key)] + self._weights[minilm.TYPES][0]
                x = self._normal(x, "embeddings.LayerNorm")
                for layer in range(FIRST):
                    x = self._layer(x, layer, torch.ones(1, len(key), dtype=torch.bool))
            self._before[key] = x[0]
        return self._before[key]

    def _layer(self, x: Tensor, number: int, there: Tensor) -> Tensor:
        name = f"encoder.layer.{number}."
        query, key, value = (
            self._linear(x, f"{name}attention.self.{part}").unflatten(-1, (minilm.HEADS, -1)).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        seen = functional.scaled_dot_product_attention(query, key, value, attn_mask=there[:, None, None, :])
        attended = self._linear(seen.transpose(1, 2).flatten(2), f"{name}attention.output.dense")
        x = self._normal(x + attended, f"{name}attention.output.LayerNorm")
        widened = functional.gelu(self._linear(x, f"{name}intermediate.dense"))
        return self._normal(x + self._linear(widened, f"{name}output.dense"), f"{name}output.LayerNorm")

    def _linear(self, x: Tensor, name: str) -> Tensor:
        whole = x @ self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
        if f"{name}.weight" in self.changes:
            down, up = self.changes[f"{name}.weight"]
            whole = whole + x @ down @ up
        return whole

    def _normal(self, x: Tensor, name: str) -> Tensor:
        weight, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        return functional.layer_norm(x, weight.shape, weight, bias, minilm.EPSILON)


def batches(people: list[list[tuple[Tokens, Tokens]]]) -> Iterator[list[tuple[Tokens, Tokens]]]:
    """Yield the pairs of some people together, once each, by chance."""
    random.shuffle(people)
    for start in range(0, len(people), PEOPLE):
        yield [pair for each in people[start : start + PEOPLE] for pair in each]


def train(people: list[list[tuple[Tokens, Tokens]]], small: list[Tokens]) -> Encoder:
    """Train the changes by pairs of a statement and a question, and messages that need no memory."""
    torch.manual_seed(0)
    random.seed(0)
    encoder = Encoder()
    optimizer = torch.optim.AdamW([each for pair in encoder.changes.values() for each in pair], RATE, weight_decay=0)
    steps, step = EPOCHS * math.ceil(len(people) / PEOPLE), 0
    for epoch in range(EPOCHS):
        for pairs in batches(people):
            said = encoder.vectors([*(each for each, _ in pairs), *random.sample(small, SMALL)])
            asked = encoder.vectors([each for _, each in pairs])
            others = (asked @ asked.T).masked_fill(torch.eye(len(pairs), dtype=torch.bool), -1)
            scores = torch.hstack([asked @ said.T, others]) / TEMPERATURE
            loss = functional.cross_entropy(scores, torch.arange(len(pairs)))
            for group in optimizer.param_groups:
                group["lr"] = RATE * min(1, (step + 1) / WARM_UP) * (1 - step / steps)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
        print(f"{epoch + 1} of {EPOCHS}: loss {loss.item():.3f}", flush=True)
    return encoder


def main() -> None:
    """Train on all lines, and keep the changes."""
    tokenizer = minilm.tokenizer()
    people = [
        [
            (tokenizer.encode(embedded_text(row_of(said))).ids, tokenizer.encode(asked).ids)
            for language, said, asked in pairs
            if language == "en"
        ]
        for pairs in (*read(LINES), *read(ENGLISH_LINES))
    ]
    lines = [line.split("\t") for path in SMALL_LINES for line in path.read_text(encoding="utf-8").splitlines()]
    small = [tokenizer.encode(text[0]).ids for label, language, *text in lines if (label, language) == ("no", "en")]
    encoder = train([pairs for pairs in people if len(pairs) > 1], small)
    with torch.no_grad():
        matrices = {name: product((down @ up).numpy(), RANK) for name, (down, up) in encoder.changes.items()}
    kept = {"encoder": MINILM_NAME, "lines": digest([LINES, ENGLISH_LINES, Path(__file__)]), "matrices": matrices}
    CHANGES.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    print(f"{CHANGES}: {CHANGES.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

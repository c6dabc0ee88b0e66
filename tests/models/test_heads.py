"""Trained heads, matrices and changes: marked with their lines, small, and right about lines that nobody trained on."""

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chatbot.models.local_encoder import MINILM_NAME, LocalEmbedder
from chatbot.models.minilm import low_rank
from chatbot.models.multilingual import ENCODER, PATH, QUESTIONS, question_map
from chatbot.models.weights import CHANGES, changes_mark

ROOT = Path(__file__).parents[2]
TRAINING = ROOT / "training"
HEADS = ["asks_the_bot", "needs_memory", "orders_a_model", "states_something"]


def script(name: str) -> dict[str, Any]:
    sys.path.insert(0, str(ROOT))
    return runpy.run_path(str(ROOT / "training" / name), run_name="training")


@pytest.mark.parametrize(
    ("path", "name", "lines", "encoder", "most"),
    [
        (PATH, "train.py", [*HEADS, "english_questions"], ENCODER, 30_000),
        (CHANGES, "train_encoder.py", ["questions", "english_questions"], MINILM_NAME, 310_000),
        (QUESTIONS, "train_questions.py", ["questions"], LocalEmbedder.name, 80_000),
    ],
)
def test_what_is_trained_is_that_of_the_lines_in_the_repository(
    path: Path, name: str, lines: list[str], encoder: str, most: int
) -> None:
    assert path.stat().st_size <= most
    kept = json.loads(path.read_text(encoding="utf-8"))
    made_of = [*(TRAINING / f"{each}.tsv" for each in lines), TRAINING / name]
    assert kept["encoder"] == encoder
    assert kept["lines"] == script("kept.py")["digest"](made_of), f"lines or code changed: run `uv run training/{name}`"


def test_a_script_in_other_words_makes_no_vector_again(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = []
    for changes in (b'{"lines": "1", "matrices": {}}', b'{"lines": "2", "matrices": {}}', b'{"matrices": {"a": {}}}'):
        monkeypatch.setattr("chatbot.models.weights.read_changes", lambda changes=changes: changes)
        marks.append(changes_mark())
    assert marks[0] == marks[1] != marks[2]


@pytest.mark.nightly
@pytest.mark.timeout(900)
async def test_training_the_map_again_gives_the_same_and_finds_more() -> None:
    mapping = script("train_questions.py")
    lines = mapping["read"](TRAINING / "held_out" / "questions.tsv")
    people = await mapping["embed"](lines)
    without, mapped = (np.array(mapping["places"](people, each)) for each in (None, question_map()))
    assert (mapped < 3).sum() > (without < 3).sum()
    again = low_rank(mapping["train"](await mapping["embed"](mapping["read"](mapping["LINES"]))))
    assert np.allclose(np.matmul(*again), np.matmul(*question_map()), atol=2e-3)


@pytest.mark.nightly
async def test_the_changes_of_the_encoder_find_more_of_lines_that_nobody_trained_on(
    request: pytest.FixtureRequest,
) -> None:
    mapping = script("train_questions.py")
    lines = mapping["read"](TRAINING / "held_out" / "questions.tsv")
    changed = np.array(mapping["places"](await mapping["embed"](lines), None))
    request.getfixturevalue("published_minilm")
    published = np.array(mapping["places"](await mapping["embed"](lines), None))
    assert (changed < 3).sum() > (published < 3).sum()


@pytest.mark.nightly  # the digest of the lines is compared by day
@pytest.mark.timeout(900)
def test_training_again_gives_the_same_heads() -> None:
    again, kept = (
        script("train.py")["Trainer"]().train()["heads"],
        json.loads(PATH.read_text(encoding="utf-8"))["heads"],
    )
    assert again.keys() == kept.keys()
    for name, head in again.items():
        assert head["thresholds"] == pytest.approx(kept[name]["thresholds"], abs=0.05)
        assert head["bias"] == pytest.approx(kept[name]["bias"], abs=0.01)


async def test_a_text_is_judged_in_any_language() -> None:
    texts = [
        "Ich wohne seit März in Gent.", "哈哈，谢谢！", "What did I tell you about my sister?", "¿Cuánto es 12 por 7?",
    ]  # fmt: skip
    short = ["I like figs", "ich mag Feigen", "me gustan los higos", "j'aime les figues", "я люблю инжир"]
    async with LocalEmbedder() as embedder:
        assert all(each.states_something for each in await embedder.judge(short)), "without a full stop"
        home, thanks, question, time = await embedder.judge(texts)
        unread = ["Η κόρη μου γίνεται 7", "मुझे अखरोट से एलर्जी है", "הבת שלי בת 7"]
        assert all(each.states_something and "needs_memory" not in each.scores for each in await embedder.judge(unread))
        assert (await embedder.embed_questions(unread))[0] == [[], [], []]
    assert home.states_something
    assert not thanks.states_something
    assert not thanks.needs_memory
    assert question.needs_memory
    assert not time.needs_memory

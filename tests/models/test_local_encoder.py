"""The local encoders, with their real weights, and the heads and changes that were trained."""

import asyncio
import json
import os
import runpy
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from chatbot.errors import MissingModel
from chatbot.models import local_encoder
from chatbot.models.local_encoder import ENGLISH as DIMENSION
from chatbot.models.local_encoder import MINILM_NAME, LocalEmbedder, MiniLMEmbedder
from chatbot.models.minilm import _threads, low_rank
from chatbot.models.multilingual import ENCODER, PATH, QUESTIONS, MultilingualEncoder, question_map
from chatbot.models.weights import CHANGES, MINILM, MULTILINGUAL, changes_mark
from chatbot.stores.records import Vector
from tests.patience import PATIENCE_S

ENGLISH = ["I live in Berlin", "Who am I?", "4711", "naïve café in Zürich is nice", "", "ok thx", "See ya, Nate!"]
OTHERS = [
    "Ich wohne in Berlin", "Wo wohne ich?", "¿Dónde vivo?", "我父亲的生日是在5月14日。",
    "Où est mon chien ?", "Я живу в Москве", "내 이름은 민수야", "mam na imię Ola",
    "Meine Schwester heißt Anna", "Quando è il mio compleanno?", "東京に住んでいます", "Minha mãe mora no Porto",
]  # fmt: skip


def product(one: Vector, other: Vector) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def test_english_is_told_from_other_languages() -> None:
    encoder = MultilingualEncoder()
    parts = encoder.encode([*ENGLISH, *OTHERS])
    found = [text for text, part in zip([*ENGLISH, *OTHERS], parts, strict=True) if encoder.is_english(text, part)]
    assert found == ENGLISH


def test_kept_vectors_are_those_of_their_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = dict(zip(OTHERS, MultilingualEncoder().encode(OTHERS), strict=True))
    monkeypatch.setattr("chatbot.models.multilingual._KEPT", 3)
    encoder = MultilingualEncoder()
    for some in (OTHERS[:4], OTHERS[3:0:-1], [*OTHERS[4:6], OTHERS[3], *OTHERS[4:6]]):
        found = encoder.encode(some)
        assert all(product(each, fresh[text]) > 0.9999 for text, each in zip(some, found, strict=True))
    assert [*encoder._vectors.kept] == [*OTHERS[4:6], OTHERS[3]]


async def test_an_english_text_has_both_parts_and_any_other_the_multilingual_one() -> None:
    async with LocalEmbedder() as embedder:
        english, german = (await embedder.embed(["I live in Berlin", "Ich wohne in Berlin"])).vectors
    assert product(english, english) == pytest.approx(1, abs=1e-5) == product(german, german)
    assert any(english[:DIMENSION])
    assert any(english[DIMENSION:-1])
    assert not any(german[:DIMENSION])
    assert english[-1] == 0
    assert german[-1] == pytest.approx(0.5**0.5)


async def test_the_first_texts_at_the_same_time_load_one_encoder_and_never_in_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []

    class Counted(MultilingualEncoder):
        def __init__(self) -> None:
            made.append(threading.get_ident())
            threading.Event().wait(0.1)  # another one would begin in that time
            super().__init__()

    monkeypatch.setattr("chatbot.models.multilingual.MultilingualEncoder", Counted)
    local_encoder._multilingual.cache_clear()
    async with LocalEmbedder() as embedder:
        await asyncio.gather(embedder.judge(["Who am I?"]), embedder.judge(["I live in Berlin"]), embedder.embed(["x"]))
    local_encoder._multilingual.cache_clear()
    assert len(made) == 1
    assert made != [threading.get_ident()]


@pytest.mark.nightly
async def test_a_question_in_one_language_finds_rows_in_others() -> None:
    rows = ["Ich wohne in Berlin", "Meine Katze heißt Miso", "我父亲的生日是在5月14日。", "I work at night"]
    wanted = {
        "Where do I live?": 0, "What is my cat called?": 1, "When is my father's birthday?": 2,
        "¿A qué horas trabajo?": 3, "我住在哪里？": 0,
    }  # fmt: skip
    async with LocalEmbedder() as embedder:
        vectors = (await embedder.embed(rows)).vectors
        for question, right in wanted.items():
            [asked], _ = await embedder.embed_questions([question])
            scores = [max(product(each, row) for each in asked) for row in vectors]
            assert scores.index(max(scores)) == right


async def test_a_question_is_moved_towards_the_statements_that_answer_it() -> None:
    said = ["Ida ist am Sonntag vierzig geworden", "Ich habe eine neue Wohnung in Gent", "Je suis allergique aux noix"]
    asked = ["How old is Ida?", "In welcher Stadt wohne ich?", "Qu'est-ce que je ne peux pas manger ?"]
    async with LocalEmbedder() as embedder:
        vectors = np.array((await embedder.embed([*said, *asked])).vectors)
        after = np.array([each[-1] for each in (await embedder.embed_questions(asked))[0]])
    rows, before = vectors[:3], vectors[3:]
    alike, moved = before[:, DIMENSION:-1] @ rows[:, DIMENSION:-1].T * 2, after @ rows.T * embedder.scale
    assert (moved.diagonal() > alike.diagonal() + 0.05).all()  # by one encoder alone, right rows are less alike
    assert (moved.diagonal() - moved.mean(axis=1) > alike.diagonal() - alike.mean(axis=1)).all()


async def test_an_english_question_is_compared_with_english_texts_word_by_word() -> None:
    said = ["My sister Ida turned forty on Sunday", "The boiler leaks again", "Meine Schwester ist vierzig", ""]
    async with LocalEmbedder() as embedder:
        close = await embedder.closeness("How old is Ida?", said)
        assert close.keys() == {*said} - {"Meine Schwester ist vierzig"}
        assert 1 > close[said[0]] > close[said[1]] > -1
        assert await embedder.closeness("Wie alt ist Ida?", said) == {}
    async with LocalEmbedder() as embedder:
        await embedder.embed([*said, "How old is Ida?"])
        assert await embedder.closeness("How old is Ida?", said) == pytest.approx(close)


EXAMPLES = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]


async def vectors_of(*texts: str) -> list[Vector]:
    async with MiniLMEmbedder() as embedder:
        return (await embedder.embed(texts)).vectors


@pytest.fixture
def published_minilm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run the test with MiniLM without its trained changes."""
    for module in ("weights", "minilm"):
        monkeypatch.setattr(f"chatbot.models.{module}.read_changes", lambda: b'{"matrices": {}}')
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.usefixtures("published_minilm")
async def test_without_the_trained_changes_similarities_are_those_that_were_published_but_for_rounding() -> None:
    weather, sunny, stadium = await vectors_of(*EXAMPLES)
    found = [product(weather, sunny), product(weather, stadium), product(sunny, stadium)]
    assert found == pytest.approx([0.6660, 0.1046, 0.1411], abs=5e-3)


async def test_each_vector_has_length_one_whatever_the_text() -> None:
    texts = ["", " ", "🦜", "東京タワー", "x" * 500, "\x00\ud7ff", "tea " * 2000]
    for found in await vectors_of(*texts):
        assert (found.typecode, len(found)) == ("f", DIMENSION)
        assert product(found, found) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("avx_512", [{each.get("architecture") for each in _threads().info()}, set()])
async def test_a_text_has_the_same_vector_alone_and_among_others(monkeypatch: pytest.MonkeyPatch, avx_512: Any) -> None:
    [alone] = await vectors_of(EXAMPLES[0])
    monkeypatch.setattr("chatbot.models.minilm._AVX_512", avx_512)
    among = await vectors_of("tea " * 300, *EXAMPLES, *["green tea"] * 200)
    assert product(alone, among[1]) == pytest.approx(1, abs=1e-5)


@pytest.mark.nightly
async def test_cancelling_returns_at_once_and_the_embedder_goes_on_working() -> None:
    async with MiniLMEmbedder() as embedder:
        await embedder.embed(["warm"])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await embedder.embed(["tea " * 250] * 64)
        async with asyncio.timeout(PATIENCE_S):
            assert len((await embedder.embed(["green tea"])).vectors) == 1


@pytest.mark.parametrize("module", ["multilingual", "minilm"])
async def test_weights_that_were_not_published_are_refused(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    published = {"multilingual": MULTILINGUAL, "minilm": MINILM}[module]
    package = tmp_path / "other_weights"
    for name in published.files:
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_bytes(b"\x08\x07")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for user in (module, "local_encoder"):
        monkeypatch.setattr(f"chatbot.models.{user}.{module.upper()}", replace(published, module="other_weights"))
    local_encoder._multilingual.cache_clear()
    async with LocalEmbedder() as embedder:
        for work in (embedder.check(), embedder.embed(["green tea"])):
            with pytest.raises(MissingModel, match=f"is missing or damaged: chatbot models get {module}"):
                await work
    assert not caplog.records
    local_encoder._multilingual.cache_clear()


def test_encoding_starts_no_threads_for_a_machine_may_allow_none() -> None:
    program = """
import os
from chatbot.models.minilm import Network
network, before = Network(), os.listdir("/proc/self/task")
network.encode(["green tea", "black tea"])
assert os.listdir("/proc/self/task") == before
"""
    if Path("/proc/self/task").exists():
        subprocess.run([sys.executable, "-c", program], timeout=PATIENCE_S, check=True)


@pytest.mark.parametrize("fault", ["cut short", "not writable", "little room"])
async def test_a_torn_cache_changes_no_vector(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = await vectors_of(EXAMPLES[0])
    folder = tmp_path / "chatbot" / "encoders"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if fault == "cut short":
        await vectors_of(EXAMPLES[0])
        [unpacked] = folder.iterdir()
        with unpacked.open("r+b") as file:
            file.truncate(unpacked.stat().st_size // 2)
    elif fault == "little room":
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100_000_000))
    else:
        folder.parent.write_text("a file where a folder should be")
    assert await vectors_of(EXAMPLES[0]) == expected
    assert len([*folder.glob("*")]) == (fault == "cut short")


async def test_unpacked_encoders_of_former_installations_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (folder := tmp_path / "chatbot" / "encoders").mkdir(parents=True)
    old, recent = (folder / f"{MINILM.module}-{name}.npy" for name in ("old", "recent"))
    recent.touch()
    old.touch()
    os.utime(old, (0, 0))
    await vectors_of(EXAMPLES[0])
    assert (old.exists(), recent.exists()) == (False, True)


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
async def test_training_the_map_again_gives_the_same_and_map_and_changes_find_more(
    request: pytest.FixtureRequest,
) -> None:
    mapping = script("train_questions.py")
    lines = mapping["read"](TRAINING / "held_out" / "questions.tsv")
    people = await mapping["embed"](lines)
    without, mapped = (np.array(mapping["places"](people, each)) for each in (None, question_map()))
    assert (mapped < 3).sum() > (without < 3).sum()
    again = low_rank(mapping["train"](await mapping["embed"](mapping["read"](mapping["LINES"]))))
    assert np.allclose(np.matmul(*again), np.matmul(*question_map()), atol=2e-3)
    request.getfixturevalue("published_minilm")
    published = np.array(mapping["places"](await mapping["embed"](lines), None))
    assert (without < 3).sum() > (published < 3).sum()


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

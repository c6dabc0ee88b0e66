"""The questions of a message, beside what else it says, and the vectors to search with for them."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from chatbot.embedding import Embedder, EmbeddingResult
from chatbot.memory.meaning import Meaning, parted, vectors_of
from chatbot.messages import Usage
from chatbot.stores.in_memory import InMemoryStore
from chatbot.stores.vectors import Vector, vector

WORDS = ("dog", "train", "flat")


class WordEmbedder(Embedder):
    """Each of three words is a direction."""

    name = "words"
    dimension = len(WORDS)
    sends_away = False

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        self.calls.append(list(texts))
        found = [vector([float(word in text.lower()) for word in WORDS]) for text in texts]
        return EmbeddingResult(found, Usage(input_tokens=0, cost_usd=0.0))


@pytest.mark.parametrize(
    ("text", "said", "questions"),
    [
        ("What is my dog called?", "", ["What is my dog called?"]),
        ("The train was late. What is my dog called?", "The train was late.", ["What is my dog called?"]),
        ("What is my dog called? The train was late!", "The train was late!", ["What is my dog called?"]),
        ("Who came?! And when?", "Who came?!", ["And when?"]),
        ("今天天气真好。我的狗叫什么？另外，火车几点？", "今天天气真好。", ["我的狗叫什么？", "另外，火车几点？"]),
        ("Would Ann like Dr. Seuss?", "", ["Would Ann like Dr. Seuss?"]),
        ("Read https://x.example/a?b=1 for me.", "Read https://x.example/a?b=1 for me.", []),
        ("I sold the dog.", "I sold the dog.", []),
        ("", "", []),
    ],
)
def test_a_message_is_what_it_asks_and_what_it_says_besides(text: str, said: str, questions: list[str]) -> None:
    assert parted(text) == (said, questions)


async def asked(tmp_path: Path, *lines: str) -> tuple[list[Vector], list[str]]:
    embedder = WordEmbedder()
    async with InMemoryStore(tmp_path) as store, Meaning(embedder, store) as meaning:
        (found,) = await vectors_of(meaning, [lines])
    return found, [text for call in embedder.calls for text in call]


@pytest.mark.parametrize("lines", [("Where is my dog?",), ("A dog is here.", "I took the train."), ("A dog.", "Why?")])
async def test_lines_have_one_vector_if_there_is_nothing_to_tell_apart(tmp_path: Path, lines: tuple[str, ...]) -> None:
    found, embedded = await asked(tmp_path, *lines)
    assert len(found) == 1
    assert embedded == ["\n".join(lines)]


@pytest.mark.parametrize(
    "lines", [("The train was late.", "Where is my dog?"), ("The train was late. Where is my dog?",)]
)
async def test_a_question_among_other_talk_weighs_most(tmp_path: Path, lines: tuple[str, ...]) -> None:
    ((dog, train, flat),), _ = await asked(tmp_path, *lines)
    assert dog > train > flat == 0
    assert math.hypot(dog, train) == pytest.approx(1)


async def test_each_of_several_questions_has_a_vector_of_its_own(tmp_path: Path) -> None:
    found, _ = await asked(tmp_path, "Where is my dog? When does the train go?")
    assert [max(WORDS, key=dict(zip(WORDS, each, strict=True)).__getitem__) for each in found] == ["dog", "train"]


async def test_of_many_questions_the_last_ones_count(tmp_path: Path) -> None:
    found, embedded = await asked(tmp_path, " ".join(f"Where is dog {number}?" for number in range(9)))
    assert len(found) == 3
    assert embedded[1:] == ["Where is dog 6?", "Where is dog 7?", "Where is dog 8?"]

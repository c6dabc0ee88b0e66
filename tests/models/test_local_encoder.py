"""The local encoders side by side: which language goes where, and questions across languages."""

import pytest

from chatbot.models.local_encoder import LocalEmbedder, is_english
from chatbot.models.minilm import DIMENSION
from chatbot.stores.vectors import Vector

ENGLISH = ["I live in Berlin", "Who am I?", "Tofu", "4711", "naïve café in Zürich is nice", "", "no", "See ya, Nate!"]
OTHERS = [
    "Ich wohne in Berlin",
    "Wo wohne ich?",
    "¿Dónde vivo?",
    "我父亲的生日是在5月14日。",
    "Où est mon chien ?",
    "Я живу в Москве",
    "내 이름은 민수야",
    "mam na imię Ola",
    "Meine Schwester heißt Anna",
    "Quando è il mio compleanno?",
    "東京に住んでいます",
    "Minha mãe mora no Porto",
]


def product(one: Vector, other: Vector) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("text", ENGLISH)
def test_english_and_what_nothing_decides_count_as_english(text: str) -> None:
    assert is_english(text)


@pytest.mark.parametrize("text", OTHERS)
def test_other_languages_are_told_by_script_or_function_words(text: str) -> None:
    assert not is_english(text)


@pytest.mark.nightly
async def test_a_text_fills_the_part_of_its_language_alone() -> None:
    async with LocalEmbedder() as embedder:
        english, german = (await embedder.embed(["I live in Berlin", "Ich wohne in Berlin"])).vectors
    assert product(english, english) == pytest.approx(1, abs=1e-5) == product(german, german)
    assert not any(english[DIMENSION:])
    assert not any(german[:DIMENSION])


@pytest.mark.nightly
async def test_an_english_question_finds_rows_of_other_languages_where_there_are_some() -> None:
    rows = ["Ich wohne in Berlin", "Meine Katze heißt Miso", "我父亲的生日是在5月14日。", "I work at night"]
    wanted = {"Where do I live?": 0, "What is my cat called?": 1, "When is my father's birthday?": 2}
    async with LocalEmbedder() as embedder:
        vectors = (await embedder.embed(rows)).vectors
        assert [len(each) for each in (await embedder.embed_questions(["Where?"], among_others=False))[0]] == [1]
        for question, right in wanted.items():
            [asked], _ = await embedder.embed_questions([question], among_others=True)
            scores = [max(product(each, row) for each in asked) for row in vectors]
            assert scores.index(max(scores)) == right


async def test_a_probe_is_near_to_a_row_of_another_language_and_to_no_english_one() -> None:
    async with LocalEmbedder() as embedder:
        english, german = (await embedder.embed(["I live in Berlin", "Ich wohne in Berlin"])).vectors
        assert max(product(each, german) for each in embedder.probes()) > 0
        assert max(product(each, english) for each in embedder.probes()) == 0

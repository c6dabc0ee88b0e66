"""The local encoders side by side: which language goes where, and questions across languages."""

import pytest

from chatbot.models.local_encoder import ENGLISH as DIMENSION
from chatbot.models.local_encoder import LocalEmbedder
from chatbot.models.multilingual import MultilingualEncoder
from chatbot.stores.vectors import Vector

ENGLISH = ["I live in Berlin", "Who am I?", "4711", "naïve café in Zürich is nice", "", "ok thx", "See ya, Nate!"]
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


def test_english_is_told_from_other_languages() -> None:
    encoder = MultilingualEncoder()
    parts = encoder.encode([*ENGLISH, *OTHERS])
    found = [text for text, part in zip([*ENGLISH, *OTHERS], parts, strict=True) if encoder.is_english(text, part)]
    assert found == ENGLISH


async def test_an_english_text_has_both_parts_and_any_other_the_multilingual_one() -> None:
    async with LocalEmbedder() as embedder:
        english, german = (await embedder.embed(["I live in Berlin", "Ich wohne in Berlin"])).vectors
    assert product(english, english) == pytest.approx(1, abs=1e-5) == product(german, german)
    assert any(english[:DIMENSION])
    assert any(english[DIMENSION:-1])
    assert not any(german[:DIMENSION])
    assert english[-1] == 0
    assert german[-1] == pytest.approx(0.5**0.5)


@pytest.mark.nightly
async def test_a_question_in_one_language_finds_rows_in_others() -> None:
    rows = ["Ich wohne in Berlin", "Meine Katze heißt Miso", "我父亲的生日是在5月14日。", "I work at night"]
    wanted = {
        "Where do I live?": 0,
        "What is my cat called?": 1,
        "When is my father's birthday?": 2,
        "¿A qué horas trabajo?": 3,
        "我住在哪里？": 0,
    }
    async with LocalEmbedder() as embedder:
        vectors = (await embedder.embed(rows)).vectors
        for question, right in wanted.items():
            [asked], _ = await embedder.embed_questions([question])
            scores = [max(product(each, row) for each in asked) for row in vectors]
            assert scores.index(max(scores)) == right


async def test_the_cosine_of_a_question_and_its_own_text_is_one_when_scaled_and_less_by_one_part_alone() -> None:
    texts = ["Where do I live?", "Wo wohne ich?"]
    async with LocalEmbedder() as embedder:
        rows = (await embedder.embed(texts)).vectors
        asked, _ = await embedder.embed_questions(texts)
        for row, vectors, expected in zip(rows, asked, ([1, 0.75], [1]), strict=True):
            assert [embedder.scale * product(each, row) for each in vectors] == pytest.approx(expected, abs=1e-4)

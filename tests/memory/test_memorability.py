"""Memorability: bounds, the gate, and what must and must not pass it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatbot.memory.memorability import GATE, TYPE_WEIGHTS, Memorability, Scores, saturated
from chatbot.stores.observation import TYPES

SHARES = st.floats(0, 1)
TEXTS = st.text(max_size=300)


@given(SHARES, SHARES, SHARES, SHARES)
def test_a_score_is_a_share(substance: float, distinctiveness: float, salience: float, weight: float) -> None:
    assert 0 <= Scores(substance, distinctiveness, salience, weight).total <= 1


@given(SHARES, SHARES, SHARES, SHARES, SHARES)
def test_more_of_any_dimension_never_scores_less(a: float, b: float, x: float, y: float, z: float) -> None:
    less, more = sorted((a, b))
    assert Scores(less, x, y, z).total <= Scores(more, x, y, z).total
    assert Scores(x, less, y, z).total <= Scores(x, more, y, z).total
    assert Scores(x, y, less, z).total <= Scores(x, y, more, z).total
    assert Scores(x, y, z, less).total <= Scores(x, y, z, more).total


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_substance_grows_and_saturates(a: float, b: float) -> None:
    less, more = sorted((a, b))
    assert 0 <= saturated(less) <= saturated(more) <= 1


@given(TEXTS, TEXTS, st.lists(TEXTS, max_size=3), SHARES)
def test_whatever_is_said_the_gate_agrees_with_the_score(text: str, reply: str, known: list[str], gate: float) -> None:
    memorability = Memorability(gate)
    for scores in (
        memorability.of_exchange(text, reply, known),
        memorability.of_text(text, "note", known=known, about=reply.split()),
    ):
        assert 0 <= scores.total <= 1
        assert memorability.passes(scores) is (scores.total >= gate)


@given(TEXTS, st.lists(st.sampled_from(["tariff", "granite", "violin", "harbour", "otter"]), unique=True))
def test_saying_more_never_makes_a_text_less_memorable(text: str, more: list[str]) -> None:
    memorability = Memorability()
    longer = f"{text} {' '.join(more)}"
    assert memorability.of_text(text, "note").substance <= memorability.of_text(longer, "note").substance


@given(TEXTS, TEXTS, st.sampled_from(TYPES))
def test_what_is_known_is_never_more_memorable_than_what_is_new(text: str, known: str, type_: str) -> None:
    memorability = Memorability()
    assert memorability.of_text(text, type_, known=[known]).total <= memorability.of_text(text, type_).total


def test_the_weights_and_the_gate_are_those_of_the_design() -> None:
    assert GATE == 0.30
    assert TYPE_WEIGHTS == {
        "decision": 0.8,
        "discovery": 0.7,
        "bugfix": 0.5,
        "feature": 0.5,
        "refactor": 0.3,
        "change": 0.3,
    }


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("My PIN is 4711", "Noted."),
        ("I'm vegetarian", "Got it."),
        ("I’m vegetarian", "OK"),
        ("allergic to nuts", "ok"),
        ("Remember: 4711", "ok"),
        ("我吃素", "好的"),
        ("東京に行きました", "はい"),
        ("I moved to Lisbon", "Fine."),
    ],
)
def test_facts_pass_in_short_form_and_in_other_scripts(text: str, reply: str) -> None:
    assert Memorability().passes(Memorability().of_exchange(text, reply))


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("", ""),
        ("hi", "Hello!"),
        ("thanks so much", "You're welcome! Happy to help anytime."),
        ("how are you?", "I'm fine, thanks for asking! How can I help you today?"),
        ("ok", "Great."),
        ("yes", "Nice to hear."),
        ("🙂", "🙂"),
    ],
)
def test_small_talk_does_not(text: str, reply: str) -> None:
    assert not Memorability().passes(Memorability().of_exchange(text, reply))


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("What is your favourite colour?", "blue"),
        ("How old are you?", "44"),
        ("Do you have any pets?", "just cats"),
        ("你最喜欢什么颜色？", "蓝色"),
        ("Which languages do you speak?", "two"),
    ],
)
def test_a_word_that_answers_a_question_passes_with_it_and_not_alone(question: str, text: str) -> None:
    memorability = Memorability()
    assert memorability.passes(memorability.of_exchange(text, "Noted.", question=question))


@pytest.mark.parametrize(
    ("question", "text"), [("Shall I go on?", "yes"), ("Do you want another joke?", "sure"), ("How are you?", "fine")]
)
def test_an_answer_to_an_offer_does_not(question: str, text: str) -> None:
    memorability = Memorability()
    assert not memorability.passes(memorability.of_exchange(text, "All right.", question=question))


@pytest.mark.parametrize(
    "text", ["Tell me a joke", "What is 17*23?", "Please tell me a story.", "Could you show me more?", "Count to 20"]
)
def test_an_errand_does_not_however_long_the_reply(text: str) -> None:
    reply = "Why did the chicken cross the road? To get to the other side, where the corn was golden and ripe."
    assert not Memorability().passes(Memorability().of_exchange(text, reply))


@pytest.mark.parametrize(
    "text",
    [
        "Write my sister Anna a birthday card",
        "How do I configure Flask routes in the budget tracker?",
        "Translate my thesis abstract on wasps",
    ],
)
def test_an_errand_with_a_topic_does(text: str) -> None:
    reply = "Here is a first version, which you can change in every place that you do not like."
    assert Memorability().passes(Memorability().of_exchange(text, reply))


def test_a_question_whose_answer_repeats_what_was_recalled_does_not_and_a_statement_does() -> None:
    known = ["The spare key hangs in the green cabinet behind the kitchen door."]
    reply = "The spare key hangs in the green cabinet behind the kitchen door."
    memorability = Memorability()
    assert not memorability.passes(memorability.of_exchange("Where is the spare key?", reply, known))
    assert memorability.passes(memorability.of_exchange("Where is the spare key?", reply))
    assert memorability.passes(memorability.of_exchange("The spare key moved to the garage.", reply, known))


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("What does Ilse drink?", False),
        ("Hi! Thanks. What does Ilse drink?", False),
        ("The doctor forbade Ilse milk and sugar. What does she drink?", True),
        ("医生不让小明喝牛奶和糖。他喝什么？", True),
        ("小明喝什么？", False),
        ("What does Ilse drink? What does she eat?", False),
    ],
)
def test_what_is_said_before_a_question_is_no_question(text: str, *, passes: bool) -> None:
    reply = "coffee with cardamom"
    memorability = Memorability()
    assert memorability.passes(memorability.of_exchange(text, reply, known=[reply])) == passes


def test_the_type_decides_among_equals() -> None:
    text = "retry granite harbour violin"
    scores = {type_: Memorability().of_text(text, type_).total for type_ in ("decision", "discovery", "note", "change")}
    assert scores["decision"] > scores["discovery"] > scores["note"] > scores["change"]

"""Statements of the speaker's own health are known, and what is said of others, supposed or quoted is not."""

import pytest

from chatbot.memory.health import tells_of_health

OWN = [
    "I'm diabetic.",
    "I am 12 weeks pregnant.",
    "I’ve got severe asthma.",
    "I was diagnosed with epilepsy in May.",
    "I take 10 mg of metformin tablets a day.",
    "Hi, by the way, my blood type is 0 negative.",
    "I'm not pregnant.",
    "I no longer have migraines.",
    "Blood type: AB negative, by the way.",
    "AB negative is my blood type, note it.",
]
NOT_OWN = [
    "My mother is diabetic.",
    "If I were pregnant, I would tell you.",
    "Do I have asthma?",
    'He said: "I have cancer."',
    "I have asthma patients all day.",
    "I write about diabetes.",
    "I have a cold start problem.",
    "Translate: I'm pregnant.",
    "Blood type A is common in Europe.",
    "Is AB negative my blood type?",
]


@pytest.mark.parametrize("text", OWN)
def test_a_statement_of_ones_own_health_is_known_denied_or_not(text: str) -> None:
    assert tells_of_health(text)


@pytest.mark.parametrize("text", NOT_OWN)
def test_what_is_of_others_supposed_asked_or_quoted_is_none(text: str) -> None:
    assert not tells_of_health(text)


def test_an_answer_to_a_question_of_health_tells_of_it() -> None:
    assert tells_of_health("AB negative", "What is your blood type?")
    assert not tells_of_health("Why do you ask?", "What is your blood type?")
    assert not tells_of_health("AB negative", "What is your cat's name?")

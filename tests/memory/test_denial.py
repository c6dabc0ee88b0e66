"""A statement and its denial contradict each other."""

import pytest

from chatbot.memory.merging import contradict

DENIED = [
    ("is allergic to cats", "is not allergic to cats"),
    ("I eat meat", "I don't eat meat"),
    ("I can swim", "I can’t swim"),
    ("She plays tennis", "She no longer plays tennis"),
    ("I smoke", "I stopped smoking"),
    ("I have a dog", "I have no dog"),
    ("I work at Acme", "I used to work at Acme"),
    ("He likes beer", "He never liked beer"),
    ("The door is open", "It is false that the door is open"),
    ("Ich esse Fleisch", "Ich esse kein Fleisch"),
    ("Ich mag Katzen", "Ich mag Katzen nicht"),
    ("J'aime le thé", "Je n'aime pas le thé"),
    ("Me gusta el té", "No me gusta el té"),
    ("我喜欢茶", "我不喜欢茶"),
    ("猫が好きです", "猫が好きではない"),
    ("Люблю чай", "Не люблю чай"),
    ("Eu como carne", "Eu não como carne"),
    ("Mangio carne", "Non mangio carne"),
]
AGREED = [
    ("My blood type is AB negative", "I'm AB negative, that's my blood type"),
    ("I like tea", "I like green tea"),
    ("I don't eat meat", "I do not eat any meat"),
    ("I have no dog", "The cat is not ill"),
    ("We have no dog and two cats", "The tram was late and full"),
    ("Ich mag Tee", "Tee mag ich"),
]


@pytest.mark.parametrize(("pairs", "expected"), [(DENIED, True), (AGREED, False)])
def test_a_statement_and_its_denial_contradict(pairs: list[tuple[str, str]], *, expected: bool) -> None:
    assert [
        pair for pair in pairs if contradict(*pair) is not expected or contradict(*pair[::-1]) is not expected
    ] == []

"""Grouping finds just what comparing each with each would; a statement and its denial contradict each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatbot.memory.merging import contradict, groups, jaccard

_TEXTS = st.lists(st.frozensets(st.sampled_from("abcdefghij"), max_size=6), max_size=25)
_SHARES = st.sampled_from([0.01, 0.2, 1 / 3, 0.5, 0.6, 0.7, 0.75, 0.9, 1.0])


def _naive(texts: list[frozenset[str]], similarity: float, least: int) -> list[list[int]]:
    left = list(range(len(texts)))
    found = []
    while left:
        group = [left.pop(0)]
        for each in group:
            near = [other for other in left if jaccard(texts[each], texts[other]) >= similarity]
            group += near
            left = [other for other in left if other not in near]
        found.append(sorted(group))
    return sorted(group for group in found if len(group) >= least)


@given(texts=_TEXTS, similarity=_SHARES, least=st.integers(2, 4))
def test_groups_are_those_of_comparing_each_with_each(
    texts: list[frozenset[str]], similarity: float, least: int
) -> None:
    assert groups(texts, similarity, least=least) == _naive(texts, similarity, least)


def test_few_pairs_are_compared_where_most_words_are_rare() -> None:
    """Ten thousand texts that all share a word are grouped without fifty million comparisons."""
    texts = [frozenset({"common", *(f"{number // 3}-{at}" for at in range(9))}) for number in range(9_999)]
    found = groups(texts, 0.5)
    assert len(found) == 3_333
    assert all(len(group) == 3 for group in found)


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

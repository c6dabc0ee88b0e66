"""Grouping finds just what comparing each with each would."""

from hypothesis import given
from hypothesis import strategies as st

from chatbot.memory.merging import groups, jaccard

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
def test_groups_are_those_of_comparing_all_with_all(texts: list[frozenset[str]], similarity: float, least: int) -> None:
    assert groups(texts, similarity, least=least) == _naive(texts, similarity, least)


def test_few_pairs_are_compared_where_most_words_are_rare() -> None:
    """Ten thousand texts that all share a word are grouped without fifty million comparisons."""
    texts = [frozenset({"common", *(f"{number // 3}-{at}" for at in range(9))}) for number in range(9_999)]
    found = groups(texts, 0.5, least=3)
    assert len(found) == 3_333
    assert all(len(group) == 3 for group in found)

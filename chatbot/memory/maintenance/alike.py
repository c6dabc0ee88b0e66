"""Groups of similar texts, by single linkage over the share of content words that two have in common. Pure.

Exact, without comparing each with each: two sets of which a share of `similarity` is common have one of their rarest
words in common, and one is not much larger than the other; only such pairs are compared. How many of the rarest words
have to be looked at is told by Bayardo, Ma and Srikant, "Scaling up all pairs similarity search" (2007), and by Xiao,
Wang, Lin and Yu, "Efficient similarity joins for near duplicate detection" (2008).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain

Words = frozenset[str]
Compared = dict[Words, list[Words]]
"""Texts that were all compared with each other, each with some that it is like: enough to link what hangs together."""

_ROUNDING = 1e-9
"""Products of shares and sizes may come out a little too high, which must not lose a pair."""


def jaccard(one: Words, other: Words) -> float:
    """The share of all words that both have, from 0 to 1; 0 where there are none."""
    common = len(one & other)
    return common / (len(one) + len(other) - common) if common else 0.0


def groups(
    texts: Sequence[Words], similarity: float, *, least: int = 3, known: Compared | None = None
) -> list[list[int]]:
    """The positions of texts that hang together, in groups of at least `least`; each in order, and the groups too.

    Two hang together where their `jaccard` is at least `similarity`, which must lie above 0, or by way of others.
    A text without words is like no other. What was compared with each other before, by the same similarity, is
    `known` and not compared again; it then holds what was compared this time, and nothing more.
    """
    known = {} if known is None else known
    twins: defaultdict[Words, list[int]] = defaultdict(list)
    for position, words in enumerate(texts):
        if words:
            twins[words].append(position)
    different = list(twins)
    links = _linked(different, similarity, known)
    found: defaultdict[int, list[int]] = defaultdict(list)
    for number, words in enumerate(different):
        found[links.root(number)] += twins[words]
    return sorted(sorted(group) for group in found.values() if len(group) >= least)


def _linked(different: list[Words], similarity: float, known: Compared) -> _Links:
    """Return the groups of similar texts; `known` is brought up to date."""
    _forget(known.keys() - set(different), known)
    numbers = {words: number for number, words in enumerate(different)}
    links = _Links(len(different))
    for words, near in known.items():
        for linked in near:
            links.join(numbers[words], numbers[linked])
    new = {number for number, words in enumerate(different) if words not in known}
    known |= {different[number]: [] for number in new}
    for one, other in _candidates(different, similarity, new) if new else ():
        if not links.joined(one, other) and jaccard(different[one], different[other]) >= similarity:
            links.join(one, other)
            known[different[one]].append(different[other])
            known[different[other]].append(different[one])
    return links


def _forget(gone: Iterable[Words], known: Compared) -> None:
    """Forget texts, and all that hung together with them: that may have been by way of them alone."""
    waiting = list(gone)
    while waiting:
        waiting += known.pop(waiting.pop(), ())


def _candidates(texts: Sequence[Words], similarity: float, new: AbstractSet[int]) -> Iterable[tuple[int, int]]:
    """Pairs, one of them new, that share one of their rarest words and are about as long; all alike are among them."""
    held = Counter(chain.from_iterable(texts))
    order = {word: place for place, word in enumerate(sorted(held, key=lambda word: (held[word], word)))}
    old_holders: defaultdict[str, list[int]] = defaultdict(list)
    new_holders: defaultdict[str, list[int]] = defaultdict(list)
    for number in sorted(range(len(texts)), key=lambda each: len(texts[each])):
        size = len(texts[number])
        shortest = similarity * size - _ROUNDING
        by_rarity = sorted(texts[number], key=order.__getitem__)
        mine = new_holders if number in new else old_holders
        near: set[int] = set()
        for word in by_rarity[: size - math.ceil(shortest) + 1]:
            near.update(new_holders.get(word, ()))
            if mine is new_holders:
                near.update(old_holders.get(word, ()))
        common = 2 * similarity / (1 + similarity) * size - _ROUNDING  # with one that is as long, or longer
        for word in by_rarity[: size - math.ceil(common) + 1]:
            mine[word].append(number)
        near.discard(number)
        yield from ((number, other) for other in near if len(texts[other]) >= shortest)


class _Links:
    """Return the groups of similar texts so far."""

    def __init__(self, size: int) -> None:
        self._above = list(range(size))

    def root(self, number: int) -> int:
        while self._above[number] != number:
            self._above[number] = self._above[self._above[number]]
            number = self._above[number]
        return number

    def joined(self, one: int, other: int) -> bool:
        return self.root(one) == self.root(other)

    def join(self, one: int, other: int) -> None:
        self._above[self.root(one)] = self.root(other)

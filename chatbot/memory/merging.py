"""Merging of observations into a digest: their distinct lines with the days, by rule, without new words. Pure."""

import math
import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

from chatbot.stores.access import Guard, fold
from chatbot.stores.fields import MERGED, MOST_COUNTED, names_with
from chatbot.stores.observation import FIELDS, KIND, OWN_KEY, PROTECTED_TYPES, SUMMARIES, Observation, estimate_tokens
from chatbot.stores.text.dates import local

MOST_TOKENS = 250
"""Maximum tokens of a digest with its title, so that several fit a prompt."""
MOST_SOURCES = 200
_LONGEST_HEADLINE = 60
_HEAD_TOKENS = 35
"""Tokens reserved for the title and the subtitle of a digest."""
_DAY_TOKENS = 4
_JOINED = (*names_with(FIELDS, MERGED), "facts")
_LONGEST_LIST = 200

Key = tuple[object, ...]


def may_be_merged(row: Observation) -> bool:
    """Return whether a row may join a digest: no protected type, task, digest or row under a writer's own key."""
    return row.type not in PROTECTED_TYPES | SUMMARIES and row.metadata.keys().isdisjoint({KIND, OWN_KEY})


def merge_key(row: Observation) -> Key:
    """Return the properties that merged rows share: agent, principal, guard, and whether they expire."""
    return (row.agent_id, row.principal, Guard.of(row), row.expires_at is None)


def digest_groups(rows: Iterable[Observation], *, least: int) -> list[list[Observation]]:
    """Return the rows, oldest first, in one group for each digest, without groups of fewer than `least`."""
    found: list[list[Observation]] = [[]]
    said: set[str] = set()
    size = _HEAD_TOKENS
    for row in sorted(rows, key=lambda each: (each.last_said_at, each.id)):
        adds = _tokens(row, said)
        is_full = size + adds > MOST_TOKENS or len(found[-1]) == MOST_SOURCES
        if is_full or _longest_list([*found[-1], row]) > _LONGEST_LIST:
            found.append([])
            said, size = set(), _HEAD_TOKENS
            adds = _tokens(row, said)  # in the new group none of its lines is a repetition
        if size + adds <= MOST_TOKENS and _longest_list([row]) <= _LONGEST_LIST:
            found[-1].append(row)
            said.update(map(fold, _lines(row.said())))
            size += adds
    return [group for group in found if len(group) >= least]


def digest(rows: Sequence[Observation], *, new_id: str, what: str, now: datetime) -> Observation:
    """Return the digest of `rows`, the one last said at the end, of one `merge_key`; its title names `what` they are.

    It has the time and session of the newest, the rank and credibility of the best, and the earliest expiry.
    """
    first, last = rows[0], rows[-1]
    joined: dict[str, Any] = {
        name: tuple(dict.fromkeys(chain(*(getattr(row, name) for row in rows)))) for name in _JOINED
    }
    return Observation(
        id=new_id,
        created_at=last.last_said_at,
        updated_at=max(now, last.last_said_at),
        agent_id=first.agent_id,
        principal=first.principal,
        session_id=last.session_id,
        type="compressed_summary",
        title=f"{len(rows)} {what}: {textwrap.shorten(last.headline, _LONGEST_HEADLINE, placeholder='…')}",
        subtitle=f"from {local(min(row.created_at for row in rows)):%Y-%m-%d} to {local(last.last_said_at):%Y-%m-%d}",
        narrative=_dated_lines((row, (row.title, row.subtitle, row.narrative)) for row in rows),
        user_text=_dated_lines((row, (row.user_text,)) for row in rows),
        assistant_text=_dated_lines((row, (row.assistant_text,)) for row in rows),
        subject=_if_the_same(row.subject for row in rows),
        category=_if_the_same(row.category for row in rows),
        source=_if_the_same(row.source for row in rows) or "maintenance",
        importance=max(row.rank for row in rows),
        confirmed_count=max(row.confirmed_count for row in rows),
        last_confirmed_at=max((row.last_confirmed_at for row in rows if row.last_confirmed_at), default=None),
        mention_count=min(sum(row.mention_count for row in rows), MOST_COUNTED),
        last_mentioned_at=max((row.last_mentioned_at for row in rows if row.last_mentioned_at), default=None),
        expires_at=min((row.expires_at for row in rows if row.expires_at), default=None),
        derived_from=tuple(row.id for row in rows),
        **Guard.of(first)._asdict(),
        **joined,
    )


def _dated_lines(parts: Iterable[tuple[Observation, Iterable[str]]]) -> str:
    """Return each line once, with the day on which it was last said: of two that differ, the later one is true."""
    said: set[str] = set()
    found = []
    for row, texts in reversed(list(parts)):
        new = {key: line for line in _lines(texts) if (key := fold(line)) not in said}
        said.update(new)
        if new:
            found.append(f"{local(row.last_said_at):%Y-%m-%d}: " + "\n".join(new.values()))
    return "\n".join(reversed(found))


def _lines(texts: Iterable[str]) -> list[str]:
    return [line for text in texts for line in text.splitlines() if line.strip()]


def _tokens(row: Observation, said: set[str]) -> int:
    """Return the tokens that a row adds to a digest: its new lines, and its date before each of its texts."""
    new = sum(estimate_tokens(f"{line}\n") for line in _lines(row.said()) if fold(line) not in said)
    texts = (row.title or row.subtitle or row.narrative, row.user_text, row.assistant_text)
    return new + _DAY_TOKENS * sum(map(bool, texts))


def _longest_list(rows: Sequence[Observation]) -> int:
    """Return how many items the longest list of the rows' digest would have."""
    return max(len({each for row in rows for each in getattr(row, name)}) for name in _JOINED)


def _if_the_same(values: Iterable[str | None]) -> str:
    found = set(values)
    return (found.pop() or "") if len(found) == 1 else ""


Words = frozenset[str]

_ROUNDING = 1e-9
"""Tolerance for products of shares and sizes, so that no pair is lost."""


def jaccard(one: Words, other: Words) -> float:
    """Return the share of common words, from 0 to 1; 0 for no words."""
    common = len(one & other)
    return common / (len(one) + len(other) - common) if common else 0.0


def groups(texts: Sequence[Words], similarity: float, *, least: int) -> list[list[int]]:
    """Return the positions of linked texts in groups of at least `least`, groups and positions in order.

    Two texts are linked if their `jaccard` is at least `similarity`, which must be above 0, or if both are linked to a
    third. A text without words is linked to none.
    """
    twins: defaultdict[Words, list[int]] = defaultdict(list)
    for position, words in enumerate(texts):
        if words:
            twins[words].append(position)
    different = list(twins)
    linked = {number: frozenset({number}) for number in range(len(different))}
    for one, other in _candidates(different, similarity):
        if linked[one] is not linked[other] and jaccard(different[one], different[other]) >= similarity:
            both = linked[one] | linked[other]
            linked |= dict.fromkeys(both, both)
    found = ([at for number in group for at in twins[different[number]]] for group in set(linked.values()))
    return sorted(sorted(group) for group in found if len(group) >= least)


def _candidates(texts: Sequence[Words], similarity: float) -> Iterable[tuple[int, int]]:
    """Yield pairs with a common rare word and similar length; every similar pair is among them.

    Prefix filtering, as in "Scaling Up All Pairs Similarity Search" (Bayardo, Ma and Srikant, 2007).
    """
    held = Counter(chain.from_iterable(texts))
    order = {word: place for place, word in enumerate(sorted(held, key=lambda word: (held[word], word)))}
    holders: defaultdict[str, list[int]] = defaultdict(list)
    for number in sorted(range(len(texts)), key=lambda each: len(texts[each])):
        size = len(texts[number])
        shortest = similarity * size - _ROUNDING
        by_rarity = sorted(texts[number], key=order.__getitem__)
        near: set[int] = set()
        for word in by_rarity[: size - math.ceil(shortest) + 1]:
            near.update(holders.get(word, ()))
        common = 2 * similarity / (1 + similarity) * size - _ROUNDING  # with a text that is as long, or longer
        for word in by_rarity[: size - math.ceil(common) + 1]:
            holders[word].append(number)
        yield from ((number, other) for other in near if len(texts[other]) >= shortest)

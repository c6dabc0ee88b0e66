"""How often a test tries: a share of it in the usual run, all of it at night, with `CHATBOT_NIGHTLY=1`."""

import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar
from zlib import crc32

import pytest
from hypothesis import settings

ItemT = TypeVar("ItemT")

_TOLD = "NIGHTLY_TESTS"
NIGHTLY = os.environ.pop("CHATBOT_NIGHTLY", os.environ.get(_TOLD, "")) not in {"", "0"}
os.environ[_TOLD] = "1" if NIGHTLY else "0"
"""Told to the workers of pytest by a name that is no setting of the product, which would refuse one that is unknown."""
_SHARE = 8
_ROUNDS = 16

_EXAMPLES = 16
"""By day Hypothesis tries the same examples each time, so that few do."""

settings.register_profile("usual", deadline=None, max_examples=100 // _EXAMPLES, derandomize=True)
settings.register_profile("nightly", deadline=None, max_examples=100)


def rounds(nightly: int, *, least: int = 1) -> int:
    """How many rounds to play, of so many at night, and no fewer than `least`."""
    return nightly if NIGHTLY else max(nightly // _ROUNDS, least)


def examples(nightly: int) -> int:
    """How many examples Hypothesis shall make, of so many at night or with `--hypothesis-profile nightly`."""
    is_nightly = settings.get_current_profile_name() == "nightly"
    return nightly if is_nightly else max(nightly // _EXAMPLES, 1)


def share(items: Sequence[ItemT], of: object) -> Sequence[ItemT]:
    """Some of the ways to try `of`, all of them at night. Others are tried with another `of`, so each has its turn."""
    if NIGHTLY:
        return items
    return items[crc32(str(of).encode()) % min(_SHARE, len(items)) :: _SHARE]


def by_day(values: Iterable[ItemT], *chosen: ItemT) -> list[Any]:
    """Parameters of a test that runs with the chosen ones by day, and with all of these values at night."""
    return [each if each in chosen else pytest.param(each, marks=pytest.mark.nightly) for each in values]

"""The way of one message through the product gets shorter, and never longer; `benchmarks/way.py` shows it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from way import walked

MODULES, CHANGES = 102, 2_370
"""Modules and changes of file of one `chatbot ask` today; lower them when it takes less.

It takes about 2,366 changes; the number is another on a busy machine, where threads and tasks alternate differently.
A dozen of them read whether this is the first session, so that a model without tools is named as such once.
"""


def test_a_message_goes_through_no_more_modules_than_yesterday() -> None:
    hint = "put code where a message passes already, or import it later: `benchmarks/way.py --list`"
    found = walked()
    for _ in range(2):
        if _changes(found) > CHANGES:
            found = walked()
    assert len(found) <= MODULES, hint
    assert _changes(found) <= CHANGES, hint


def _changes(found: dict[str, tuple[int, int]]) -> int:
    return sum(changes for _, changes in found.values())

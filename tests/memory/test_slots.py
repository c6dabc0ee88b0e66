"""A statement is outdated only by its like."""

from pathlib import Path
from time import process_time

import pytest

from chatbot.memory.changes import changes, statement
from chatbot.memory.denial import contradict

SETS = Path(__file__).parents[2] / "benchmarks" / "sets"


def lines(name: str) -> list[list[str]]:
    text = (SETS / name).read_text(encoding="utf-8")
    return [[part.strip() for part in line.split("|")] for line in text.splitlines() if line and line[0] != "#"]


@pytest.mark.parametrize(
    ("kind", "first", "second", "_"), [each for each in lines("changes.txt") if each[0] == "denial"]
)
def test_a_denial_never_counts_as_a_repetition(kind: str, first: str, second: str, _: str) -> None:
    assert kind == "denial"
    assert contradict(first, second)


@pytest.mark.parametrize("text", ["no, " * 600, "((((" * 500, "I live in " * 300, "A A " * 700, ", " * 1_500])
def test_no_message_takes_long_to_read(text: str) -> None:
    begin = process_time()
    statement(text)
    assert process_time() - begin < 0.5


@pytest.mark.parametrize(
    ("first", "second", "is_changed"),
    [
        ("My bike has a basket.", "My bike has a bell.", False),
        ("My bike has three gears.", "My bike has seven gears.", True),
        ("My parcel arrived yesterday.", "My parcel did not arrive today.", False),
        ("Anna comes on Friday.", "Anna does not come on Friday.", True),
        ("I row on the canal.", "Since May I row on the lake instead of the canal.", True),
    ],
)
def test_what_is_had_besides_or_denied_of_another_time_changes_nothing(
    first: str, second: str, *, is_changed: bool
) -> None:
    assert changes(statement(first), statement(second)) is is_changed

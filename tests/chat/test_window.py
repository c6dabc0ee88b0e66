"""The window: at most so many entries, beginning at the same one for many turns."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from chatbot.chat.dialogue import Window
from chatbot.stores.records import TranscriptEntry

START = datetime(2026, 1, 2, tzinfo=UTC)


def entries(count: int) -> list[TranscriptEntry]:
    roles = ("user", "assistant")
    return [TranscriptEntry(roles[at % 2], str(at), START + timedelta(seconds=at)) for at in range(count)]


def shown(turns: int, limit: int) -> list[tuple[str, int]]:
    """For each turn: the first entry shown, and how many there are before the new message."""
    window = Window(limit)
    said = []
    for turn in range(turns):
        so_far = entries(2 * turn + 1)
        kept = window.cut(so_far[-limit - 1 :], 1)
        said.append((kept[0].content, len(kept) - 1))
    return said


def test_a_short_conversation_is_shown_whole() -> None:
    assert shown(6, 20) == [("0", 2 * turn) for turn in range(6)]


def test_the_window_never_exceeds_its_limit() -> None:
    assert max(count for _, count in shown(200, 20)) <= 20


def test_the_beginning_stays_the_same_for_several_turns() -> None:
    begins = [first for first, _ in shown(200, 20)]
    changes = sum(before != after for before, after in pairwise(begins))
    assert changes <= 200 / 4


def test_the_window_begins_with_what_the_user_said() -> None:
    assert all(int(first) % 2 == 0 for first, _ in shown(100, 7))


def test_an_edit_that_empties_the_transcript_begins_a_new_window() -> None:
    window = Window(20)
    window.cut(entries(11), 1)
    assert window.cut([], 0) == []
    assert [entry.content for entry in window.cut(entries(1), 1)] == ["0"]

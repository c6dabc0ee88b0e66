"""Long lines of a session that goes on, broken between words before rich is loaded."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.utils import get_cwidth

from chatbot.cli.screen import line_breaks


def broken(text: str, width: int) -> list[str]:
    begins = [0, *line_breaks(text, width), len(text)]
    return "\n".join(text[begin:end].rstrip() for begin, end in pairwise(begins)).split("\n")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("the quick brown fox", ["the quick", "brown fox"]),
        ("the quick", ["the quick"]),
        ("a reallylongword b", ["a", "reallylong", "word b"]),
        ("one\ntwo three four", ["one", "two three", "four"]),
        ("  indented text here", ["  indented", "text here"]),
        ("日本語の文字です", ["日本語の文", "字です"]),
        ("", [""]),
    ],
)
def test_lines_are_broken_between_words_or_inside_longer_ones(text: str, lines: list[str]) -> None:
    assert broken(text, 10) == lines


@given(st.text("ab 日\n"), st.integers(2, 12))
def test_each_line_fits_and_nothing_but_spaces_is_lost(text: str, width: int) -> None:
    lines = broken(text, width)
    assert all(get_cwidth(line.rstrip()) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "").replace("\n", "")

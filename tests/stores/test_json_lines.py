"""One JSON object a line: what cannot be read is skipped and reported, and hides nothing else."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatbot.stores import json_lines
from chatbot.stores.errors import DamagedFile
from chatbot.stores.files import locked, opened

NAME = "lines.jsonl"
RECORDS = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    st.none() | st.integers() | st.text(st.characters(exclude_categories=["Cs"]), max_size=9_000),
    max_size=3,
)


def _append(folder: Path, *records: Mapping[str, object]) -> None:
    with locked(folder) as opened_folder:
        for record in records:
            opened_folder.append(NAME, json_lines.encode(record))


def _both_ways(folder: Path) -> list[dict[str, object]]:
    with opened(folder) as opened_folder:
        forwards, _ = json_lines.read_since(opened_folder, NAME, 0, (folder / NAME).stat().st_size)
        assert list(json_lines.read_backwards(opened_folder, NAME)) == forwards[::-1]
    return forwards


@given(records=st.lists(RECORDS, max_size=12))
def test_records_come_back_as_they_were_in_both_directions(
    records: list[dict[str, object]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("lines")
    (folder / NAME).write_bytes(b"".join(map(json_lines.encode, records)))
    assert _both_ways(folder) == records


@pytest.mark.parametrize("off", range(-2, 3))
def test_a_line_that_ends_near_the_border_of_a_chunk_is_read_whole(tmp_path: Path, off: int) -> None:
    small = {"n": 1}
    filler = {"x": "y" * (16 * 1024 - len(json_lines.encode({"x": ""})) - len(json_lines.encode(small)) + off)}
    _append(tmp_path, {"first": 0}, filler, small, filler, small)
    assert _both_ways(tmp_path) == [{"first": 0}, filler, small, filler, small]


@pytest.mark.parametrize("garbage", [b"{", b"5", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"a": 1} {"b": 2}'])
def test_a_line_that_is_no_record_is_skipped_and_reported(
    tmp_path: Path, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / NAME).write_bytes(b'{"n": 1}\n' + garbage + b'\n{"n": 2}\n')
    with caplog.at_level(logging.WARNING):
        assert _both_ways(tmp_path) == [{"n": 1}, {"n": 2}]
    assert NAME in caplog.text


def test_a_line_without_an_end_is_not_read_until_memory_is_full(tmp_path: Path) -> None:
    _append(tmp_path, {"n": 1})
    os.truncate(tmp_path / NAME, 50 << 30)
    with opened(tmp_path) as folder, pytest.raises(DamagedFile, match=NAME):
        list(json_lines.read_backwards(folder, NAME))


def test_cut_anywhere_every_whole_record_survives_and_the_next_one_too(tmp_path: Path) -> None:
    records: list[dict[str, object]] = [{"n": number, "text": "é🦜\n"} for number in range(3)]
    data = b"".join(map(json_lines.encode, records))
    for length in range(len(data) + 1):
        (tmp_path / NAME).write_bytes(data[:length])
        _append(tmp_path, {"next": True})
        whole = data[:length].count(b"\n") + (data[length : length + 1] == b"\n")
        assert _both_ways(tmp_path) == [*records[:whole], {"next": True}], length


def test_reading_backwards_keeps_to_the_file_it_began_with(tmp_path: Path) -> None:
    lines = [b'{"n": %d}' % number for number in range(10_000)]
    (tmp_path / NAME).write_bytes(b"\n".join(lines))
    with opened(tmp_path) as folder:
        backwards = json_lines.lines_backwards(folder, NAME)
        first = next(backwards)
        folder.replace(NAME, b"another\n" * 3)
        folder.remove(NAME)
        assert [first, *backwards] == lines[::-1]
        assert list(json_lines.lines_backwards(folder, NAME)) == []

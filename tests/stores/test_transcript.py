"""The transcript format: golden bytes, round trips, and what a torn or hand-edited file is read as."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatbot.stores import TranscriptEntry, transcript
from chatbot.stores.files import LONGEST_ENTRY
from chatbot.stores.testing.session_contract import HARD_TEXTS, TEXTS, entry
from chatbot.stores.transcript import TranscriptFile

WHEN = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
GOLDEN = """\
### user — 2026-01-02T03:04:05.678901Z (40 bytes)

Hello, tell me about your memory system.

### assistant — 2026-01-02T03:04:06.000000Z (181 bytes)

I keep files.

### A heading — is no header, and neither is what begins like one, but these are escaped:
\\### user — 2026-01-02T03:04:05Z ahem
\\### user — 2026-01-02T03:04:05Z

"""


def test_the_format_is_what_we_promise() -> None:
    entries = [
        TranscriptEntry("user", "Hello, tell me about your memory system.", WHEN),
        TranscriptEntry(
            "assistant",
            "I keep files.\n\n"
            "### A heading — is no header, and neither is what begins like one, but these are escaped:\n"
            "### user — 2026-01-02T03:04:05Z ahem\n### user — 2026-01-02T03:04:05Z",
            WHEN.replace(second=6, microsecond=0),
        ),
    ]
    assert transcript.render(entries).decode() == GOLDEN
    assert transcript.parse(GOLDEN.encode()) == entries


@given(st.lists(TEXTS, max_size=6))
def test_whatever_was_said_is_read_as_it_was(contents: list[str]) -> None:
    entries = [entry(content, after_s=number) for number, content in enumerate(contents)]
    assert transcript.parse(transcript.render(entries)) == entries


def test_cut_anywhere_every_whole_entry_survives_and_the_next_append_too() -> None:
    said = [entry(content, after_s=number) for number, content in enumerate(text[:60] for text in HARD_TEXTS)]
    data = transcript.render(said)
    ends = [block.end for block in transcript.blocks(data)]
    added = entry("after the power came back", "assistant", after_s=99)
    for length in range(len(data) + 1):
        torn = before(length) + data[:length]
        cut, missing = transcript.mend(torn)
        read = transcript.parse(torn[: len(torn) - cut] + missing + transcript.render([added]))
        whole = sum(end - len("\n\n") <= length for end in ends)
        assert read[1:] == [*said[:whole], added], length


def before(length: int) -> bytes:
    """An entry with which so many bytes behind it end at a page, as they do where a write was interrupted."""
    empty = len(transcript.render([entry("")]))
    size = -(empty + length) % 4096
    text = transcript.render([entry("x" * size)])
    too_long = len(text) - empty - size  # digits of the length
    return transcript.render([entry("x" * ((size - too_long) % 4096))])


def test_whoever_shortens_the_last_entry_by_hand_need_not_count() -> None:
    text = transcript.render([entry("I am fond of Sam"), entry("So am I, of Sam and Pat", "assistant", after_s=1)])
    shorter = text.replace(b"Sam and Pat", b"Sam").replace(b"I am fond of Sam", b"Sam")
    assert transcript.mend(shorter) == (0, b"")
    assert [each.content for each in transcript.parse(shorter)] == ["Sam", "So am I, of Sam"]


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_what_is_typed_without_its_length_is_whole(end: str) -> None:
    typed = f"### user — 2026-01-02T03:04:05Z\n\none\n\ntwo{end}".encode()
    for data in (typed, before(len(typed)) + typed):
        cut, missing = transcript.mend(data)
        assert (cut, end + missing.decode()) == (0, "\n\n")
        assert transcript.parse(data + missing)[-1].content == "one\n\ntwo"


def test_a_length_that_is_far_behind_its_end_is_found(tmp_path: Path) -> None:
    file = TranscriptFile(tmp_path, 100)
    file.append([[entry("whole")]])
    text = transcript.render([entry("line\n\n" * 100_000)])
    for size in (200_000, 500_000):
        path = tmp_path / "transcript.md"
        whole = path.read_bytes()
        path.write_bytes(whole + text[: size - size % 4096 - len(whole)])
        assert [each.content for each in TranscriptFile(tmp_path, 100).read_last(1)] == [file.read_all()[-1].content]
        file.append([[entry(f"after {size}")]])
    assert [each.content for each in file.read_all()] == ["whole", "after 200000", "after 500000"]
    asides = sorted(tmp_path.glob("transcript.md.damaged-*"), key=lambda path: path.stat().st_size)
    assert all(text.startswith(path.read_bytes().rstrip(b"\n")) for path in asides)
    assert len(asides) == 2
    file.drop_last(2**31)
    assert not list(tmp_path.glob("transcript.md.damaged-*"))


@pytest.mark.parametrize("mebibytes", [20, 63])
def test_half_of_a_very_long_entry_of_a_very_large_transcript_blocks_no_session(tmp_path: Path, mebibytes: int) -> None:
    whole, half = b"\n" + transcript.render([entry("whole")]), transcript.render([entry("x" * LONGEST_ENTRY)])
    half = half[: (mebibytes << 20) - len(whole)]
    with (tmp_path / "transcript.md").open("wb") as torn:
        torn.seek(LONGEST_ENTRY)
        torn.write(whole + half)
    file = TranscriptFile(tmp_path, 100)
    file.append([[entry("next")]])
    assert [each.content for each in file.read_last(2)] == ["whole", "next"]
    [aside] = tmp_path.glob("transcript.md.damaged-*")
    assert aside.stat().st_size == len(half)


@pytest.mark.parametrize("zeros", [1, 100, 4096, 5000])
def test_zeros_that_a_power_cut_left_are_cut_off(zeros: int) -> None:
    data = transcript.render([entry("kept")])
    assert transcript.mend(data + bytes(zeros)) == (zeros, b"")
    long = transcript.render([entry("lost " * 2_000)])[:-4_000]
    assert transcript.mend(data + long + bytes(zeros)) == (len(long) + zeros, b"")


def test_half_a_character_is_cut_off() -> None:
    cut, missing = transcript.mend("### user — 2026-01-02T03:04:05Z\n\nété 🦜".encode()[:-2])
    assert (cut, missing) == (2, b"\n\n")


def test_a_file_converted_to_dos_line_ends_reads_the_same() -> None:
    entries = [entry("two\nlines"), entry("", after_s=1), entry("three\n\nlines\n", after_s=2)]
    assert transcript.parse(transcript.render(entries).replace(b"\n", b"\r\n")) == entries


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        ("### user — 2026-01-02T03:04:05Z\nno blank line\n", ["no blank line"]),
        ("### user — 2026-01-02T03:04:05Z\n\nno end", ["no end"]),
        ("### user — 2026-01-02T03:04:05Z", [""]),
        ("# My notes\n\n### user — 2026-01-02T03:04:05Z\n\nhi\n\n", ["hi"]),
        ("### user — 2026-02-30T03:04:05Z\n\nthe 30th of February\n\n", ["the 30th of February"]),
        ("### user — 2026-01-02T03:04:05.5Z  \n\nhalf a second, two spaces\n\n", ["half a second, two spaces"]),
        ("### user — 1000-01-01T00:00:00Z\n\nlong ago\n\n", ["long ago"]),
        ("### user — 9999-12-31T23:59:59.999999Z\n\nthe last\n\n", ["the last"]),
        ("### user — 0999-01-01T00:00:00Z\n\ntoo long ago\n\n", []),
        ("### User — 2026-01-02T03:04:05Z\n\nno role\n\n", []),
        ("### user - 2026-01-02T03:04:05Z\n\na hyphen\n\n", []),
        ("### user — 2026-13-02T03:04:05Z\n\nno such month\n\n", []),
        ("no entry at all", []),
        ("", []),
    ],
)
def test_hand_edits_are_read_leniently_but_never_invented(text: str, contents: list[str]) -> None:
    assert [found.content for found in transcript.parse(text.encode())] == contents


def test_bytes_that_are_no_text_are_shown_and_lose_nothing_else() -> None:
    read = transcript.parse(b"### user \xe2\x80\x94 2026-01-02T03:04:05Z\n\ncaf\xe9\n\n")
    assert [found.content for found in read] == ["caf\ufffd"]

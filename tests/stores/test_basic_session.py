"""Transcripts and key-values in readable files: their format, caps, hand edits, and several processes."""

import asyncio
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from chatbot.stores import KeyValue, SessionRef, TranscriptEntry, files, transcript
from chatbot.stores.basic_session import BasicSessionStore
from chatbot.stores.errors import DamagedFile, InvalidValue, StoreFailed, UnsafePath
from chatbot.stores.files import LONGEST_ENTRY, locked
from chatbot.stores.records import LONGEST_CONTENT
from chatbot.stores.testing.session_contract import HARD_TEXTS, entry
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
        TranscriptEntry(
            "user", "Hello, tell me about your memory system.", WHEN.astimezone(timezone(timedelta(hours=9)))
        ),
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


@pytest.mark.parametrize(("end", "half"), [("", b""), ("\n", b""), ("\n\n", b""), ("", "🦜".encode()[:-2])])
def test_what_is_typed_without_its_length_is_whole_but_for_half_a_character(end: str, half: bytes) -> None:
    typed = f"### user — 2026-01-02T03:04:05Z\n\none\n\nété{end}".encode()
    for data in (typed, before(len(typed + half)) + typed):
        cut, missing = transcript.mend(data + half)
        assert (cut, end + missing.decode()) == (len(half), "\n\n")
        assert transcript.parse(data + missing)[-1].content == "one\n\nété"


def append(file: TranscriptFile, *entries: TranscriptEntry) -> None:
    if file.write([entries]):
        file.compact()


def test_a_length_that_is_far_behind_its_end_is_found(tmp_path: Path) -> None:
    file = TranscriptFile(tmp_path, 100)
    append(file, entry("whole"))
    text = transcript.render([entry("line\n\n" * 100_000)])
    for size in (200_000, 500_000):
        path = tmp_path / "transcript.md"
        whole = path.read_bytes()
        path.write_bytes(whole + text[: size - size % 4096 - len(whole)])
        assert [each.content for each in TranscriptFile(tmp_path, 100).read_last(1)] == [file.read_all()[-1].content]
        append(file, entry(f"after {size}"))
    assert [each.content for each in file.read_all()] == ["whole", "after 200000", "after 500000"]
    asides = sorted(tmp_path.glob("transcript.md.damaged-*"), key=lambda path: path.stat().st_size)
    assert all(text.startswith(path.read_bytes().rstrip(b"\n")) for path in asides)
    assert len(asides) == 2
    file.drop_last(2**31)
    assert not list(tmp_path.glob("transcript.md.damaged-*"))


@pytest.mark.parametrize("mebibytes", [20, pytest.param(63, marks=pytest.mark.nightly)])
def test_half_of_a_very_long_entry_of_a_very_large_transcript_blocks_no_session(tmp_path: Path, mebibytes: int) -> None:
    whole, half = b"\n" + transcript.render([entry("whole")]), transcript.render([entry("x" * LONGEST_ENTRY)])
    half = half[: (mebibytes << 20) - len(whole)]
    with (tmp_path / "transcript.md").open("wb") as torn:
        torn.seek(LONGEST_ENTRY)
        torn.write(whole + half)
    file = TranscriptFile(tmp_path, 100)
    append(file, entry("next"))
    assert [each.content for each in file.read_last(2)] == ["whole", "next"]
    [aside] = tmp_path.glob("transcript.md.damaged-*")
    assert aside.stat().st_size == len(half)


def test_a_transcript_without_an_entry_within_reach_is_named_before_it_is_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "transcript.md").open("wb") as transcript_file:
        transcript_file.seek(40 << 30)
        transcript_file.write(b"\n" + transcript.render([entry("said")]))
    assert [each.content for each in TranscriptFile(tmp_path, 9).read_last(1)] == ["said"]
    with pytest.raises(DamagedFile, match="no entry begins"):
        TranscriptFile(tmp_path, 9).read_last(2)


@pytest.mark.nightly
async def test_the_longest_entry_is_read_and_longer_ones_refused(store: BasicSessionStore, session: SessionRef) -> None:
    longest = "🦜" * LONGEST_CONTENT
    await store.transcript_append(session, [entry("first"), entry(longest)])
    with pytest.raises(InvalidValue, match="15,000,001 characters long"):
        await store.transcript_append(session, [entry("next"), entry(f"{longest}x")])
    assert [found.content for found in await store.transcript_read_last(session, 3)] == ["first", longest]


@pytest.mark.parametrize("zeros", [1, 100, 4096, 5000])
def test_zeros_that_a_power_cut_left_are_cut_off(zeros: int) -> None:
    data = transcript.render([entry("kept")])
    assert transcript.mend(data + bytes(zeros)) == (zeros, b"")
    long = transcript.render([entry("lost " * 2_000)])[:-4_000]
    assert transcript.mend(data + long + bytes(zeros)) == (len(long) + zeros, b"")


def test_a_file_converted_to_dos_line_ends_reads_the_same() -> None:
    entries = [entry("two\nlines"), entry("", after_s=1), entry("three\n\nlines\n", after_s=2)]
    assert transcript.parse(transcript.render(entries).replace(b"\n", b"\r\n")) == entries


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        ("### user — 2026-01-02T03:04:05Z\nno blank line\n", ["no blank line"]),
        ("### user — 2026-01-02T03:04:05Z\n\nno end", ["no end"]), ("### user — 2026-01-02T03:04:05Z", [""]),
        ("\ufeff### user — 2026-01-02T03:04:05Z\n\na byte order mark\n\n", ["a byte order mark"]),
        ("# My notes\n\n### user — 2026-01-02T03:04:05Z\n\nhi\n\n", ["hi"]),
        ("### user — 2026-02-30T03:04:05Z\n\nthe 30th of February\n\n", ["the 30th of February"]),
        ("### user — 2026-01-02T03:04:05.5Z  \n\nhalf a second, two spaces\n\n", ["half a second, two spaces"]),
        ("### user — 1000-01-01T00:00:00Z\n\nlong ago\n\n", ["long ago"]),
        ("### user — 9999-12-31T23:59:59.999999Z\n\nthe last\n\n", ["the last"]),
        ("### user — 0999-01-01T00:00:00Z\n\ntoo long ago\n\n", []),
        ("### User — 2026-01-02T03:04:05Z\n\nno role\n\n", []), ("### user - 2026-01-02T03:04:05Z\n\na hyphen\n\n", []),
        ("### user — 2026-13-02T03:04:05Z\n\nno such month\n\n", []),
        ("### user — 2026-01-02T03:04:05Z\n\nno text: caf\udce9\n\n", ["no text: caf\ufffd"]), ("no entry at all", []),
        ("", []),
    ],
)  # fmt: skip
def test_hand_edits_are_read_leniently_but_never_invented(text: str, contents: list[str]) -> None:
    assert [found.content for found in transcript.parse(text.encode(errors="surrogateescape"))] == contents


KV_GOLDEN = """\
{"cap": 200, "entries": [
  {"key": "user_name", "value": "sachi", "ts": "2026-01-02T03:04:05.678901Z"},
  {"key": "topic", "value": "日本 \\"quoted\\"", "ts": "2026-01-02T03:04:05.678901Z"}
]}
"""


@pytest.fixture
def session(tmp_path: Path) -> SessionRef:
    return SessionRef("s", tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> BasicSessionStore:
    return BasicSessionStore(tmp_path, transcript_cap=10)


async def _said(store: BasicSessionStore, session: SessionRef, n: int = 99) -> list[str]:
    return [found.content for found in await store.transcript_read_last(session, n)]


async def test_kv_json_has_the_promised_form_and_the_cap_configured_now(tmp_path: Path, session: SessionRef) -> None:
    store = BasicSessionStore(tmp_path)
    await store.kv_set(session, KeyValue("user_name", "sachi", WHEN))
    await store.kv_set(session, KeyValue("topic", '日本 "quoted"', WHEN))
    assert (tmp_path / "kv.json").read_text(encoding="utf-8") == KV_GOLDEN
    await BasicSessionStore(tmp_path, kv_cap=1).kv_set(session, KeyValue("third", "v", WHEN))
    assert [found.key for found in await store.kv_entries(session)] == ["third"]
    assert await store.kv_delete(session, "third")
    assert (tmp_path / "kv.json").read_bytes() == b'{"cap": 200, "entries": []}\n'


async def test_what_the_cap_moves_out_goes_to_the_archive_in_order_and_what_a_person_wrote_stays(
    store: BasicSessionStore, session: SessionRef
) -> None:
    path = session.folder / "transcript.md"
    path.write_bytes(b"# Notes of mine\n\n### user \xe2\x80\x94 2026-01-02T03:04:05Z\n\ncaf\xe9\n\n")
    for number in range(34):
        await store.transcript_append(session, [entry(str(number), after_s=number)])
    archived, shown = (session.folder / "transcript.archive.md").read_bytes(), path.read_bytes()
    assert 10 <= shown.count(b"### user") <= 15
    assert archived.count(b"### user") + shown.count(b"### user") == 35
    assert shown.startswith(b"# Notes of mine\n\n### user")
    assert b"caf\xe9" in archived
    said = [found.content for found in await store.transcript_read_all(session)]
    assert said == ["caf\ufffd", *map(str, range(34))]


async def test_stamps_are_read_in_a_thread_and_an_unreadable_folder_costs_no_other_session_its_own(
    store: BasicSessionStore, session: SessionRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    stamps = await store.transcript_stamps([SessionRef(session.id, loop), session])
    assert stamps == ["", *await store.transcript_stamps([session])]
    monkeypatch.setattr("chatbot.stores.basic_session.transcript_stamp", lambda _: threading.current_thread().name)
    assert await store.transcript_stamps([session]) != [threading.current_thread().name]


async def test_an_entry_that_was_cut_off_is_kept_aside_reported_and_followed_by_the_next(
    store: BasicSessionStore, session: SessionRef, caplog: pytest.LogCaptureFixture
) -> None:
    await store.transcript_append(session, [entry("whole"), entry("will be torn")])
    path = session.folder / "transcript.md"
    os.truncate(path, path.stat().st_size - 7)
    assert await _said(store, session) == ["whole"]
    assert await store.transcript_count(session) == 1
    with caplog.at_level(logging.WARNING):
        await store.transcript_append(session, [entry("next")])
    assert await _said(store, session) == ["whole", "next"]
    [aside] = session.folder.glob("transcript.md.damaged-*")
    assert aside.read_text().endswith("(12 bytes)\n\nwill be")
    assert aside.name in caplog.text


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"[]", b'{"entries": {}}', b'{"entries": [1]}', b'{"entries": [{"key": "a"}]}', b"\xff\xfe", b"null",
     b'{"cap": 1, "entries": [{"key": "a", "value": 1, "ts": "2026-01-02T03:04:05Z"}]}',
     b'{"cap": 1, "entries": [{"key": "a", "value": "1", "ts": "yesterday"}]}',
     b'{"entries": [{"key": "a", "value": "1", "ts": "0001-01-01T00:00:00+09:00"}]}',
     b'{"entries": [{"key": "\\ud800", "value": "1", "ts": "2026-01-02T03:04:05Z"}]}', b"[" * 100_000],
)  # fmt: skip
async def test_a_damaged_kv_json_is_named_by_reads_and_set_aside_by_a_write_and_never_overwritten(
    store: BasicSessionStore, session: SessionRef, damage: bytes
) -> None:
    (session.folder / "kv.json").write_bytes(damage)
    for _ in range(2):
        with pytest.raises(DamagedFile, match=r"kv\.json is damaged.*chatbot doctor --fix"):
            await store.kv_get(session, "a")
    assert (session.folder / "kv.json").read_bytes() == damage
    with pytest.raises(DamagedFile, match=r"kv\.json is damaged.*set aside as kv\.json\.damaged-"):
        await store.kv_set(session, KeyValue("b", "2", WHEN))
    aside = list(session.folder.glob("kv.json.damaged-*"))
    assert [path.read_bytes() for path in aside] == [damage]
    await store.kv_set(session, KeyValue("b", "2", WHEN))
    assert [found.key for found in await store.kv_entries(session)] == ["b"]


@pytest.mark.parametrize("name", ["transcript.md", "kv.json", ".lock", ""])
async def test_a_link_for_a_file_lock_or_folder_is_refused(store: BasicSessionStore, tmp_path: Path, name: str) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    (folder if name else outside).mkdir()
    if name:
        outside.write_bytes(b"secret")
    (folder / name).symlink_to(outside)
    session = SessionRef("s", folder)
    if name != "kv.json":
        with pytest.raises(UnsafePath, match="link"):
            await store.transcript_append(session, [entry("x")])
    if name != "transcript.md":
        with pytest.raises(UnsafePath, match="link"):
            await store.kv_set(session, KeyValue("a", "1", WHEN))
    if name != ".lock":
        with pytest.raises(UnsafePath, match="link"):
            await (store.kv_get(session, "a") if name == "kv.json" else store.transcript_read_last(session, 1))
    assert outside.read_bytes() == b"secret" if name else list(outside.iterdir()) == []


@pytest.mark.parametrize("step", ["draft", "half the archive", "whole archive"])
def test_a_compaction_killed_at_any_step_keeps_every_entry_once(tmp_path: Path, step: str) -> None:
    file = TranscriptFile(tmp_path, cap=10)
    said = [entry(str(number % 2)) for number in range(9)]  # alike, so that nothing but the files can tell them apart
    append(file, *said)
    data = (tmp_path / "transcript.md").read_bytes()
    half = len(data) // 2
    archive = {"draft": b"", "half the archive": data[: half - 5], "whole archive": data[:half]}[step]
    (tmp_path / "transcript.archive.md").write_bytes(archive)
    (tmp_path / ".transcript.compaction-0.tmp").write_bytes(data[half:])
    (tmp_path / ".transcript.compaction-0 (copy of another program).tmp").write_bytes(data[half:])
    assert TranscriptFile(tmp_path, cap=10).read_all() == said
    append(file, entry("next"))
    assert TranscriptFile(tmp_path, cap=10).read_all() == [*said, entry("next")]


def test_an_append_that_fails_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(TranscriptFile(tmp_path, cap=5), entry("said"))
    before = (tmp_path / "transcript.md").read_bytes()
    monkeypatch.setattr(files, "_MOST", len(before) - 1)
    with pytest.raises(StoreFailed, match="too many to be read at once"):
        append(TranscriptFile(tmp_path, cap=5), entry("next"))
    assert (tmp_path / "transcript.md").read_bytes() == before


def test_a_failing_compaction_does_not_fail_the_append(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "transcript.archive.md").mkdir()
    file = TranscriptFile(tmp_path, cap=5)
    for number in range(8):
        append(file, entry(str(number)))
    assert "could not be compacted" in caplog.text
    (tmp_path / "transcript.archive.md").rmdir()
    append(file, entry("8"))
    assert [found.content for found in file.read_all()] == [str(number) for number in range(9)]


def test_what_no_file_can_keep_is_refused_by_name() -> None:
    for role in ("", "User", "a b", "x" * 33, "user\n", "### user", "-user"):
        with pytest.raises(InvalidValue, match="cannot be a role"):
            TranscriptEntry(role, "text", WHEN)
    with pytest.raises(InvalidValue, match="surrogate"):
        TranscriptEntry("user", "\ud800", WHEN)
    with pytest.raises(InvalidValue, match="empty"):
        KeyValue("", "value", WHEN)
    with pytest.raises(InvalidValue, match="takes 2,002 bytes: at most 2,000 can be kept"):
        KeyValue("é" * 1_001, "value", WHEN)
    with pytest.raises(InvalidValue, match="surrogate"):
        KeyValue("key", "\udfff", WHEN)
    for no_moment, words in (
        (WHEN.replace(tzinfo=None), "no time zone"),
        (WHEN.replace(year=999), "before the year 1000"),
        (datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), "out of range"),
    ):
        with pytest.raises(InvalidValue, match=words):
            TranscriptEntry("user", "text", no_moment)
        with pytest.raises(InvalidValue, match=words):
            KeyValue("key", "value", no_moment)


async def test_a_torn_end_is_read_at_once_though_others_write(store: BasicSessionStore, session: SessionRef) -> None:
    (session.folder / "transcript.md").write_bytes(transcript.render([entry("said")])[:-1])
    with locked(session.folder):
        reading = asyncio.create_task(_said(store, session))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not reading.done()
    assert await reading == ["said"]


async def test_what_was_read_is_the_callers_own(store: BasicSessionStore, session: SessionRef) -> None:
    await store.transcript_append(session, [entry("said")])
    os.utime(session.folder / "transcript.md", (1, 1))
    for _ in range(3):
        read = await store.transcript_read_last(session, 5)
        assert len(read) == 1
        read.clear()


async def test_closing_waits_for_an_append_whose_caller_left(store: BasicSessionStore, session: SessionRef) -> None:
    with locked(session.folder):
        appending = asyncio.create_task(store.transcript_append(session, [entry("said")]))
        await asyncio.sleep(0)
        appending.cancel()
        closing = asyncio.create_task(store.aclose())
        await asyncio.wait([appending])
    await closing
    assert transcript.parse((session.folder / "transcript.md").read_bytes()) == [entry("said")]


async def test_edits_by_hand_of_one_size_are_seen_however_fast(store: BasicSessionStore, session: SessionRef) -> None:
    await store.transcript_append(session, [entry("version 000")])
    await store.kv_set(session, KeyValue("key", "version 000", WHEN))
    for number in range(300):
        for path in (session.folder / "transcript.md", session.folder / "kv.json"):
            with path.open("r+b") as file:
                data = file.read()
                file.seek(data.index(b"version") + len("version "))
                file.write(f"{number:03}".encode())
        assert await _said(store, session) == [f"version {number:03}"]
        assert await store.kv_get(session, "key") == f"version {number:03}"


def test_a_compaction_after_another_writer_was_killed_takes_no_torn_end_for_a_sound_one(tmp_path: Path) -> None:
    file = TranscriptFile(tmp_path, cap=5)
    assert file.write([[entry(str(number)) for number in range(8)]])
    with (tmp_path / "transcript.md").open("ab") as torn:
        torn.write(transcript.render([entry("torn off")])[:-6])
    file.compact()
    append(file, entry("next"))
    assert [found.content for found in file.read_all()] == [*map(str, range(8)), "next"]


async def test_a_session_that_is_deleted_or_forked_while_it_compacts_is_no_trouble_to_report(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        store = BasicSessionStore(tmp_path, transcript_cap=5)
        await store.transcript_append(SessionRef("s", folder), [entry(str(n)) for n in range(8)])
        folder.rename(tmp_path / f"{number} moved")
        await store.aclose()
        assert len(TranscriptFile(tmp_path / f"{number} moved", 5).read_all()) == 8
    assert caplog.text == ""


def test_a_read_beside_appends_and_compactions_sees_each_entry_whole_once_and_in_order(tmp_path: Path) -> None:
    is_done = threading.Event()
    lengths: list[int] = []

    def read() -> None:
        file = TranscriptFile(tmp_path, cap=5)
        while not is_done.is_set():
            said = [found.content for found in file.read_all()]
            assert said == [f"{number:06}" * 1000 for number in range(len(said))]
            last = [int(found.content[:6]) for found in file.read_last(5)]
            assert last == list(range(last[0], last[-1] + 1)) if last else not said
            lengths.append(len(said))

    with ThreadPoolExecutor(2) as threads:
        reading = [threads.submit(read) for _ in range(2)]
        try:
            for number in range(60):
                append(TranscriptFile(tmp_path, cap=5), entry(f"{number:06}" * 1000))
        finally:
            is_done.set()
        for each in reading:
            each.result()
    assert lengths[-1] >= lengths[0]
    assert len(TranscriptFile(tmp_path, cap=5).read_all()) == 60

"""Journals and caches, of the first format or damaged by hands, disks and strangers: it is told, and work goes on."""

import asyncio
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from chatbot.stores import files
from chatbot.stores.errors import InvalidValue, LaterFormat, StoreBusy, StoreFailed, UnsafePath
from chatbot.stores.files import LOCK_TIMEOUT_S, make_folder
from chatbot.stores.log import LinePlace
from chatbot.stores.observation import STATUSES, Triple
from chatbot.stores.observations import file_log as journal
from chatbot.stores.observations import replica
from chatbot.stores.observations.index import TextIndex
from chatbot.stores.observations.store import ObservationFileStore
from chatbot.stores.query import FactFilter, Filter, Question
from chatbot.stores.row_events import Event
from tests.disk import ENDLESS, Put, fill
from tests.effort import by_day, rounds
from tests.patience import PATIENCE_S
from tests.stores.places import NOW, OWNER, Place, adding, id_of, update

EVERYTHING = Filter(statuses=STATUSES)


def line(event: Event) -> bytes:
    return json.dumps(event.as_json()).encode()


def lines(*parts: bytes | dict[str, Any]) -> bytes:
    return b"".join((part if isinstance(part, bytes) else json.dumps(part).encode()) + b"\n" for part in parts)


A, B, C = (line(adding(number)) for number in range(1, 4))


class Journaled(Place):
    def put(self, data: bytes) -> None:
        self.home.mkdir(exist_ok=True)
        self.journal.write_bytes(data)

    def purge(self, number: int) -> None:
        assert self.run(lambda store: store.purge(OWNER, [id_of(number)])) == [id_of(number)]

    def titles(self) -> list[str]:
        return self.run(titles)

    def save(self) -> None:
        """Write a snapshot."""
        self.run(lambda store: store.reindex())

    @property
    def snapshot(self) -> Path:
        [found] = self.cache.glob(f"*/{replica.NAME}/table-*")
        return found


async def titles(store: ObservationFileStore) -> list[str]:
    page = await store.find(OWNER, EVERYTHING, order="created", ascending=True, limit=1000)
    words = await store.match(OWNER, ["titl"], Filter(), limit=1000)
    current = await store.find(OWNER, Filter(), limit=1000)
    assert {match.id for match in words} == {row.id for row in current.rows if "title" in row.title}
    for row in page.rows:
        assert await store.history(OWNER, row.id)
    await store.facets(OWNER, "tags")
    await store.facts(OWNER, FactFilter())
    await store.stats(OWNER)
    return [row.title for row in page.rows]


async def titles_once_purged(store: ObservationFileStore) -> list[str]:
    await store.purge(OWNER, [id_of(1)])
    return await titles(store)


@pytest.fixture
def place(tmp_path: Path) -> Journaled:
    return Journaled(tmp_path)


def changed(event: object, **fields: Any) -> dict[str, Any]:
    return {"v": 1, "event": event, "at": "2026-03-04T00:00:00Z", "id": id_of(1)} | fields


BROKEN: list[Any] = [
    b"{", b"[1, 2]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"v":1' + b"0" * 5000 + b"}", changed("dance"),
    changed("add"), changed("add", row=[]), changed(["add"]), changed("delete", at="yesterday"),
    changed("delete", at="2026-03-04T00:00:00"), changed("delete", id="one"), changed("delete", ids=[{"a": 1}]),
    changed("delete", ids=[]), changed("update", set=[1]), changed("update", set={"id": id_of(9)}),
    changed("update", set={"title": 5}), changed("update", set={"title": ""}),
    changed("update", set={"created_at": "x"}), changed("update", set={"superseded_by": id_of(9)}),
    changed("counts", set={"use_count": 2**40}), changed("counts", set={"use_count": -1}), changed("supersede", by=[]),
    changed("compress", by=0),
]  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {"id": "two"}, {"created_at": "2026-03-04"}, {"updated_at": "0001-01-01T00:00:00Z"}, {"title": ["a"]},
    {"narrative": 5}, {"facts": [1]}, {"tags": {"a": [1]}}, {"type": "poem"}, {"status": "lost"},
    {"importance": float("nan")}, {"use_count": float("inf")}, {"mention_count": 2**40},
    {"metadata": {"n": float("-inf")}}, {"session_id": {"a": 1}}, {"superseded_by": "x"}, {"expires_at": "never"},
    {"derived_from": [[]]},
]  # fmt: skip
FACTS: list[dict[str, Any]] = [
    {"id": "x"}, {"subject": ""}, {"object": "x" * 1001}, {"predicate": "\ud800"}, {"confidence": 2},
    {"confidence": float("nan")}, {"confidence": True}, {"source": {}}, {"source": "me"}, {"agent_id": 5},
    {"namespace": ["a"]}, {"session_id": 5}, {"visibility": "all"}, {"created_at": "now"},
]  # fmt: skip
FACT = Triple(id=id_of(20), subject="s", predicate="p", object="o", created_at=NOW, sensitivity="public")
BAD: dict[str, list[Any]] = {
    "lines": BROKEN,
    "rows": [changed("add", row=adding(2).as_json()["row"] | field) for field in ROWS],
    "facts": [changed("triple", triple=FACT.as_json() | field) for field in FACTS],
}


@pytest.mark.parametrize("what", BAD)
def test_senseless_lines_are_told_and_hide_none(place: Journaled, what: str, caplog: pytest.LogCaptureFixture) -> None:
    data = lines(A, *BAD[what], B)
    place.put(data)
    assert place.titles() == ["title 1", "title 2"]
    assert place.run(lambda store: store.facts(OWNER, FactFilter())) == []
    told = sum(f"{place.journal} holds a line" in line and "see `chatbot doctor`" in line for line in caplog.messages)
    assert told >= len(BAD[what])
    place.commit(adding(3), Event(kind="confirm", at=NOW, ids=(id_of(1),)))
    assert place.journal.read_bytes().startswith(data)
    assert place.titles() == ["title 1", "title 2", "title 3"]


@pytest.mark.parametrize("version", [2, 10**9, "two", 1.5])
def test_a_later_format_is_left_alone_however_often_it_is_asked(place: Journaled, version: object) -> None:
    data = lines(A, {"v": version, "event": "sing", "at": 5}, B)
    place.put(data)

    async def ask(store: ObservationFileStore) -> None:
        for _ in range(3):
            asked = (store.find(OWNER, Filter()), store.commit(OWNER, [adding(3)]), store.purge(OWNER, [id_of(1)]))
            for refused in (*asked, store.reindex()):
                with pytest.raises(LaterFormat, match=r"a memory was written by a later release .* upgrade"):
                    await refused

    place.run(ask)
    assert place.journal.read_bytes() == data


def test_what_a_later_release_says_of_a_row_is_kept_through_compaction(place: Journaled) -> None:
    later = json.loads(A) | {"mood": "calm"}
    later["row"]["colour"] = "green"
    confirmed = Event(kind="confirm", at=NOW, ids=(id_of(1),)).as_json() | {"by_whom": "Ada"}
    place.put(lines(later, confirmed, b"gibberish \r of old", B))
    used_at = NOW + timedelta(days=1)
    using = Event(kind="use", at=used_at, ids=(id_of(1), id_of(2)))

    async def use(store: ObservationFileStore) -> None:
        for _ in range(4):
            await store.commit(OWNER, [using] * 1000)
        await store.commit(OWNER, [adding(3)])

    place.run(use)
    data = place.journal.read_bytes()
    assert data.count(b"\n") < 100
    assert data.startswith(lines(later, confirmed, b"gibberish \r of old", B))
    for number in (1, 2):
        [row] = place.run(lambda store, number=number: store.get(OWNER, [id_of(number)]))  # type: ignore[misc]
        assert (row.use_count, row.last_used_at) == (4000, used_at)
    states = place.run(lambda store: store.states(OWNER, EVERYTHING, limit=9))
    assert [each.quiet_since for each in states] == [used_at, used_at, NOW]
    [version] = place.run(lambda store: store.history(OWNER, id_of(1)))
    assert [event.kind for event in version.events] == ["add", "confirm"]
    place.purge(2)
    assert place.journal.read_bytes().startswith(lines(later, confirmed, b"gibberish \r of old"))


def test_the_first_row_of_an_id_stands_and_purges_take_all(place: Journaled, caplog: pytest.LogCaptureFixture) -> None:
    place.put(lines(A, line(adding(1, title="title again")), B, C))
    assert place.titles() == ["title 1", "title 2", "title 3"]
    assert "used twice" in caplog.text
    place.save()
    assert place.run(titles_once_purged) == ["title 2", "title 3"]
    assert b"again" not in place.journal.read_bytes()
    assert place.titles() == ["title 2", "title 3"]
    assert place.journal.read_bytes().count(b"purge") == 1  # one number for each row, or the cached ones are others


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_succession_that_bites_its_tail_has_an_end(place: Journaled, length: int) -> None:
    ring = [
        Event(kind="supersede", at=NOW, ids=(id_of(number),), by=id_of(number % length + 1))
        for number in range(1, length + 1)
    ]
    place.put(lines(A, B, C, *(event.as_json() for event in ring)))
    for start in range(1, length + 1):
        found = place.run(lambda store, start=start: store.history(OWNER, id_of(start)))  # type: ignore[misc]
        assert {version.observation.id for version in found} == {id_of(number) for number in range(1, length + 1)}
    place.commit(Event(kind="restore", at=NOW, ids=(id_of(1),)))
    assert place.run(lambda store: store.purge(OWNER, [id_of(1)])) == [id_of(1)]


def test_events_about_what_nobody_knows_change_nothing(place: Journaled) -> None:
    unknown = [
        Event(kind=kind, at=NOW, ids=(id_of(9),), by=id_of(8))
        for kind in ("update", "mention", "use", "confirm", "delete", "restore", "supersede", "compress", "retract")
    ]
    place.put(lines(*(event.as_json() for event in unknown), A, {"v": 1, "event": "purge", "at": "2026-03-04T00:00:00Z",
                                                                 "id": id_of(9)}, B))  # fmt: skip
    assert place.titles() == ["title 1", "title 2"]
    place.commit(adding(9))
    assert place.titles() == ["title 1", "title 2", "title 9"]


@pytest.mark.parametrize("tail", [b"\0" * 10, b"\0" * 10_000, B[:30], B[:30] + b"\0" * 5000, b"\n\n", b"\r\n", b" "])
def test_a_torn_end_is_mended_and_told(place: Journaled, tail: bytes, caplog: pytest.LogCaptureFixture) -> None:
    place.put(lines(A) + tail)
    assert place.titles() == ["title 1"]
    place.commit(adding(3))
    assert place.titles() == ["title 1", "title 3"]
    assert place.journal.read_bytes().endswith(b"}\n")
    if tail.strip():
        assert str(place.journal) in caplog.text


def test_lines_that_end_like_those_of_windows_are_read_and_erased(place: Journaled) -> None:
    place.put(lines(A, B, C).replace(b"\n", b"\r\n"))
    assert place.titles() == ["title 1", "title 2", "title 3"]
    place.commit(Event(kind="confirm", at=NOW, ids=(id_of(3),)))
    assert place.run(titles_once_purged) == ["title 2", "title 3"]
    assert place.titles() == ["title 2", "title 3"]


def test_an_older_copy_in_place_of_an_open_journal_is_true(place: Journaled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "_MOST_KEPT_ROWS", 0)
    place.commit(adding(1, tags=("milk",)))
    old = place.journal.read_bytes()

    async def work(store: ObservationFileStore) -> None:
        await store.commit(OWNER, [adding(2)])
        assert await titles(store) == ["title 1", "title 2"]
        for copied in (True, False):  # another file, and the same one shortened
            if copied:
                draft = place.home / "copy"
                draft.write_bytes(old)
                draft.replace(place.journal)
            else:
                place.journal.write_bytes(old)
            assert await titles(store) == ["title 1"]
            await store.commit(OWNER, [adding(3)])
            assert await titles(store) == ["title 1", "title 3"]
            await store.reindex()
        place.journal.write_bytes(place.journal.read_bytes().replace(b"title 1", b"a longer title"))  # by an editor
        assert await titles(store) == ["a longer title", "title 3"]
        place.journal.write_bytes(place.journal.read_bytes().replace(b"milk", b"silk"))  # which nobody notices
        await store.commit(OWNER, [update(id_of(1), tags=["wool"])])

    place.run(work)
    assert place.titles() == ["a longer title", "title 3"]


def test_a_line_moved_in_place_is_not_taken_for_a_change_of_another_row(place: Journaled) -> None:
    place.commit(*(adding(n, narrative="x" * 4_096) for n in (1, 2)))
    place.commit(update(id_of(1), title="one"), update(id_of(2), title="two"))
    place.commit(adding(3, narrative="x" * 8_192))
    place.run(lambda store: store.reindex())
    lines = place.journal.read_bytes().splitlines(keepends=True)
    with place.journal.open("r+b") as file:
        file.write(b"".join([*lines[:2], lines[3], lines[2], *lines[4:]]))
    with pytest.raises(InvalidValue, match="changed in place"):
        place.run(lambda store: store.get(OWNER, [id_of(1)]))


def test_a_journal_that_is_deleted_while_open_is_begun_again(place: Journaled) -> None:
    async def work(store: ObservationFileStore) -> None:
        await store.commit(OWNER, [adding(1), adding(2)])
        await store.reindex()
        place.journal.unlink()
        assert await titles(store) == []
        place.put(lines(C))
        assert await titles(store) == ["title 3"]
        place.journal.unlink()
        await store.commit(OWNER, [adding(1)])
        assert await titles(store) == ["title 1"]
        shutil.rmtree(place.home)
        assert await titles(store) == []
        await store.commit(OWNER, [adding(2)])

    place.run(work)
    assert place.titles() == ["title 2"]


@pytest.mark.parametrize("what", ["link", "dangling link", "folder", "pipe"])
def test_what_is_no_plain_file_is_neither_read_nor_written(place: Journaled, tmp_path: Path, what: str) -> None:
    place.home.mkdir()
    other = tmp_path / "other"
    if what == "link":
        other.write_bytes(lines(A))
    if "link" in what:
        place.journal.symlink_to(other)
    elif what == "folder":
        place.journal.mkdir()
        (place.journal / "file").touch()
    else:
        os.mkfifo(place.journal)

    async def work(store: ObservationFileStore) -> None:
        for refused in (store.commit(OWNER, [adding(2)]), store.find(OWNER, Filter())):
            with pytest.raises((UnsafePath, StoreFailed)):
                await refused

    place.run(work)
    assert not other.exists() or other.read_bytes() == lines(A)


def test_a_full_disk_refuses_what_is_new_and_keeps_what_was(small_disk: Path) -> None:
    place = Journaled(small_disk)

    async def work(store: ObservationFileStore) -> None:
        await store.commit(OWNER, [adding(1), adding(2)])
        fill(small_disk)
        with pytest.raises(StoreFailed, match="No space left on device: free some space"):
            await store.commit(OWNER, [adding(3, narrative="x" * 50_000)])
        assert await titles(store) == ["title 1", "title 2"]
        with pytest.raises(StoreFailed, match="No space left"):
            await store.purge(OWNER, [id_of(1)])
        assert await titles(store) == ["title 1", "title 2"]
        await store.reindex()
        assert await titles(store) == ["title 1", "title 2"]
        (small_disk / "ballast").unlink()
        await store.commit(OWNER, [adding(3, narrative="x" * 50_000)])
        assert await store.purge(OWNER, [id_of(1)]) == [id_of(1)]

    place.run(work)
    assert place.titles() == ["title 2", "title 3"]


def test_a_byte_that_was_flipped_anywhere_in_the_caches_changes_no_answer(place: Journaled) -> None:
    place.commit(*(adding(number, tags=(f"tag {number}",)) for number in range(1, 6)))
    place.save()
    files = sorted(path for path in place.cache.rglob("*") if path.is_file() and path.stat().st_size)
    assert {"table", "manifest.json", "seg"} <= {path.name.partition("-")[0] for path in files}
    for name in (path.relative_to(place.cache) for path in files):
        good = {path: path.read_bytes() for path in files}
        data = good[place.cache / name]
        for at in range(0, len(data), max(1, len(data) // rounds(40, least=5))):
            (place.cache / name).write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            assert place.titles() == [f"title {number}" for number in range(1, 6)]
            shutil.rmtree(place.cache)
            for path, content in good.items():
                make_folder(path.parent)
                path.write_bytes(content)
                path.chmod(0o600)


@pytest.mark.parametrize("kind", ENDLESS)
def test_whatever_replaces_a_cached_file_it_is_made_again(place: Journaled, kind: str, put_in_place: Put) -> None:
    place.commit(*(adding(number, tags=(f"tag {number}",)) for number in range(1, 6)))
    place.save()
    left = [f"title {number}" for number in range(1, 6)]
    for number, name in enumerate(("index/seg-*", "index/manifest.json", "table/table-*", "table/manifest.json"), 1):
        [path] = place.cache.glob(f"*/{name}")
        put_in_place(path, kind)
        if number == 1:
            put_in_place(path.with_name("of-nobody"), kind)
        assert place.titles() == left
        place.purge(number)
        left.remove(f"title {number}")
        place.save()
        assert place.titles() == left
        [again] = place.cache.glob(f"*/{name}")
        assert again.is_file()
        found = [each for each in place.cache.rglob("*") if each.is_file()]
        assert sum(each.stat().st_size for each in found) < 1 << 20
        assert f"title {number}".encode() not in b"".join(each.read_bytes() for each in found)


def test_the_snapshot_of_another_journal_is_not_believed(place: Journaled, tmp_path: Path) -> None:
    place.commit(adding(1))
    place.save()
    other = tmp_path / "other"
    other.write_bytes(lines(line(adding(7)), B))
    place.journal.write_bytes(other.read_bytes())  # the same inode
    assert place.titles() == ["title 7", "title 2"]
    place.save()
    other.replace(place.journal)  # the same bytes, another inode
    assert place.titles() == ["title 7", "title 2"]


@pytest.mark.parametrize("trouble", ["link", "readable by all", "owned by another", "a file", "root is a file"])
def test_a_cache_that_is_not_ours_alone_is_not_used_and_that_is_told(
    place: Journaled, tmp_path: Path, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    place.commit(adding(1))
    place.save()
    folder = place.snapshot.parents[1]
    before = place.snapshot.read_bytes()
    if trouble == "link":
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
    elif trouble == "readable by all":
        folder.chmod(0o755)
    elif trouble == "owned by another":
        if os.geteuid() != 0:
            pytest.skip("only root may give a folder away")
        os.chown(folder, 65534, 65534)
    elif trouble == "a file":
        shutil.rmtree(folder)
        folder.write_bytes(b"")
    else:
        shutil.rmtree(place.cache)
        place.cache.write_bytes(b"")
    place.put(place.journal.read_bytes() + lines(B))
    assert place.titles() == ["title 1", "title 2"]
    place.commit(adding(3))
    assert place.titles() == ["title 1", "title 2", "title 3"]
    assert "no text index can be kept" in caplog.text
    if trouble == "link":
        assert [path.read_bytes() for path in (tmp_path / "elsewhere").rglob("table-*")] == [before]


@pytest.mark.parametrize("part", ["", "index"])
def test_a_file_in_the_place_of_a_folder_of_the_cache_is_mended(place: Journaled, part: str) -> None:
    place.commit(adding(1))
    place.save()
    folder = place.snapshot.parents[1]
    shutil.rmtree(folder / part)
    (folder / part).touch(0o600)

    async def mend(store: ObservationFileStore) -> None:
        for flaw in await store.examine():
            if flaw.mend is not None:
                flaw.mend()

    place.run(mend)
    assert place.titles() == ["title 1"]
    place.save()
    assert (folder / "index").is_dir()


def test_what_was_erased_together_is_told_in_one_line_and_rows_keep_their_places(place: Journaled) -> None:
    async def work(store: ObservationFileStore) -> None:
        for number in range(1, 9):
            await store.commit(OWNER, [adding(number, title=f"word{number}")])
            await store.commit(OWNER, [Event(kind="use", at=NOW, ids=(id_of(1), id_of(number)))])
        fading = {"decay_per_day": 1}
        later = structs.replace(OWNER, now=NOW + timedelta(days=3))
        ids = tuple(id_of(number) for number in (5, 8))
        await store.commit(later, [Event(kind="consolidate", at=later.now, ids=ids, fields=fading)])
        await store.reindex()  # so that segments hold rows by their numbers
        gone = [id_of(number) for number in (2, 3, 4, 6)]
        await store.purge(OWNER, gone, who="maintenance", why="old")

    async def check(store: ObservationFileStore) -> None:
        for number in (1, 5, 7, 8):
            assert [each.id for each in await store.match(OWNER, [f"word{number}"], Filter())] == [id_of(number)]
        rows = {row.id: row for row in await store.get(OWNER, [id_of(1), id_of(5), id_of(8)])}
        assert [rows[id_of(number)].use_count for number in (1, 5, 8)] == [8, 1, 1]
        assert [rows[id_of(number)].current_strength for number in (1, 5, 8)] == [0.5, 0.1, 0.1]

    place.run(work)
    place.run(check)
    events = [json.loads(each) for each in place.journal.read_bytes().splitlines()]
    named = [each["id"] if each["event"] == "purge" else each["row"]["id"] for each in events[:8]]
    assert named == [id_of(number) for number in range(1, 9)]
    assert not [each for each in events if each["event"] == "use"]
    for each in [*place.cache.rglob("table")]:
        shutil.rmtree(each)
    place.run(check)  # from the journal alone, with the segments that were there


def test_drafts_of_the_killed_are_purged_from_any_journal(place: Journaled, monkeypatch: pytest.MonkeyPatch) -> None:
    place.commit(adding(1, title="hushhush"), adding(2))
    place.save()
    data = place.journal.read_bytes()
    (place.home / f".{journal.NAME}.123-abc.tmp").write_bytes(data)
    (place.snapshot.parent / ".table-1.123.tmp").write_bytes(data)
    (place.snapshot.parents[1] / "index" / ".seg-1.123.tmp").write_bytes(data)
    (place.snapshot.parents[1] / "index" / "seg-1").write_bytes(data)
    monkeypatch.setattr(files, "_MOST", len(data) - 1)  # of any other file
    assert [flaw.state for flaw in place.run(lambda store: store.examine()) if flaw.subject == "memory"] == ["ok"]
    place.purge(1)
    assert place.holding("hushhush") == []


def test_callers_of_different_moments_see_what_is_not_expired_then(place: Journaled) -> None:
    place.commit(adding(1, expires_at=datetime(1960, 1, 1, tzinfo=UTC)), adding(2))

    async def look(store: ObservationFileStore) -> None:
        for year, shown in ((1970, ["title 2"]), (1950, ["title 1", "title 2"]), (1960, ["title 2"])):
            view = structs.replace(OWNER, now=datetime(year, 1, 1, tzinfo=UTC))
            page = await store.find(view, Filter(), order="created", ascending=True)
            assert [row.title for row in page.rows] == shown

    place.run(look)


class Faltering(journal.FileLog):
    """A journal whose rows cannot be read for a while, as those in a database that is away."""

    is_away = False

    def event_at(self, place: LinePlace) -> Event:
        if self.is_away:
            raise StoreBusy("the database is busy, try again")
        return super().event_at(place)


class FalteringStore(ObservationFileStore):
    def open_log(self, home: Path) -> Faltering:
        self.log = Faltering(home)
        return self.log


async def test_a_change_unreadable_for_now_is_not_skipped(place: Journaled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica, "_MOST_KEPT_ROWS", 0)
    async with FalteringStore(place.home, cache=str(place.cache)) as store, place.open() as other:
        await other.commit(OWNER, [adding(1), adding(2)])
        assert await titles(store) == ["title 1", "title 2"]
        await other.commit(OWNER, [update(id_of(1), title="another"), Event(kind="mention", at=NOW, ids=(id_of(2),))])
        store.log.is_away = True
        with pytest.raises(StoreBusy):
            await titles(store)
        store.log.is_away = False
        assert await titles(store) == ["another", "title 2"]
        [row] = await store.get(OWNER, [id_of(2)])
        assert row.mention_count == 1


def test_a_search_that_builds_the_index_holds_no_writer_up(place: Journaled) -> None:
    place.commit(*(adding(number) for number in range(1, MANY)))
    reached, going_on = threading.Event(), threading.Event()

    def progress(_done: int, _all: int) -> None:
        reached.set()
        assert going_on.wait(PATIENCE_S)

    async def work(store: ObservationFileStore) -> None:
        store.progress = progress
        asking = asyncio.create_task(store.candidates(OWNER, Question(terms=("9999",)), EVERYTHING))
        assert await asyncio.to_thread(reached.wait, PATIENCE_S)
        try:
            async with asyncio.timeout(PATIENCE_S / 2):
                await store.commit(OWNER, [adding(9_999)])
        finally:
            going_on.set()
        assert [*(await asking).rows] == [id_of(9_999)]

    place.run(work)


def test_reindexing_holds_no_writer_up(place: Journaled) -> None:
    place.commit(*(adding(number) for number in range(1, 5)))
    reached, going_on = threading.Event(), threading.Event()

    def progress(_done: int, _all: int) -> None:
        reached.set()
        assert going_on.wait(PATIENCE_S)

    async def work(store: ObservationFileStore) -> None:
        building = asyncio.create_task(store.reindex(progress))
        assert await asyncio.to_thread(reached.wait, 30)
        writing = asyncio.create_task(store.commit(OWNER, [adding(9)]))
        lock = place.home / journal.LOCK_NAME
        async with asyncio.timeout(PATIENCE_S):
            while not writing.done() and await asyncio.to_thread(_is_free, lock):
                pass
        going_on.set()
        async with asyncio.timeout(LOCK_TIMEOUT_S / 2):
            await asyncio.gather(building, writing)

    place.run(work)
    assert len(place.titles()) == 5


async def test_a_closing_that_is_cancelled_ends_what_was_begun(place: Journaled) -> None:
    store = place.open()
    make_folder(place.home)
    with files.locked(place.home):
        writing = asyncio.create_task(store.commit(OWNER, [adding(1)]))
        await asyncio.sleep(0)
        closing = asyncio.create_task(store.aclose())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.sleep(0)
    await writing
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert store._replica._is_closed


def _is_free(lock: Path) -> bool:
    script = "import fcntl,sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    return subprocess.run([sys.executable, "-c", script, str(lock)], check=False, capture_output=True).returncode == 0


def test_what_is_torn_is_read_by_nobody_before_it_is_whole(place: Journaled) -> None:
    place.put(lines(A) + B[:40])

    async def work(store: ObservationFileStore) -> None:
        assert await titles(store) == ["title 1"]
        with place.journal.open("ab") as file:
            file.write(B[40:] + b"\n")
        assert await titles(store) == ["title 1", "title 2"]

    place.run(work)


@pytest.fixture(autouse=True)
def _all_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)


@pytest.mark.parametrize("moment", by_day(["open", "plan", "write", "write by a search"], "open", "write by a search"))
def test_no_file_has_a_row_erased_while_indexed(place: Journaled, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    moment, _, by_search = moment.partition(" ")
    rows = MANY if by_search else 600
    place.commit(adding(1, narrative="unmistakable"), *(adding(number) for number in range(2, rows)))
    method = {"open": "refresh", "plan": "rebuild_plans", "write": "write"}[moment]
    before = getattr(TextIndex, method)
    purges: list[list[str]] = []

    def purging(index: TextIndex, *given: Any) -> Any:
        if not purges:
            purges.append([])
            with ThreadPoolExecutor(1) as thread:
                purged = thread.submit(place.run, lambda store: store.purge(OWNER, [id_of(1)])).result()
            purges[0] += purged
        return before(index, *given)

    async def reindex(store: ObservationFileStore) -> None:
        await store.find(OWNER, EVERYTHING, order="created", limit=1)
        monkeypatch.setattr(TextIndex, method, purging)
        if by_search:
            found = await store.candidates(OWNER, Question(terms=("unmistak",)), EVERYTHING)
            assert found.rows == {}
        else:
            await store.reindex()
        assert purges == [[id_of(1)]]
        assert place.holding("unmistak") == []
        assert await store.get(OWNER, [id_of(1), id_of(2)]) == [adding(2).row]

    place.run(reindex)


MANY = 2_100
"""Number of missing rows that a search writes to the index."""
JOURNALS = Path(__file__).parent / "journals"
ROOT = Path(__file__).parents[2]


async def test_a_journal_of_the_first_format_opens_and_answers_unchanged(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    copy = tmp_path / "memory" / "observations.jsonl"
    shutil.copy(JOURNALS / "observations-1.jsonl", copy)
    for _ in range(2):  # from the journal, and then from the caches
        async with ObservationFileStore(tmp_path / "memory", cache=str(tmp_path / "cache")) as store:
            stats = await store.stats(OWNER)
            assert dict(stats.by_status) == {"active": 5, "superseded": 1, "deleted": 1, "archived": 1}
            found = await store.match(OWNER, ["appl"], Filter())
            assert {each.id for each in found} == set(map(id_of, (1, 2, 3, 8)))
            assert [each.id for each in await store.match(OWNER, ["alter"], Filter())] == [id_of(1)]
            assert [fact.object for fact in await store.facts(OWNER, FactFilter())] == ["pears"]
            rows = {row.id: row for row in await store.get(OWNER, [id_of(2), id_of(3)])}
            assert (rows[id_of(2)].mention_count, rows[id_of(3)].confirmed_count) == (1, 1)
            assert [each.observation.id for each in await store.history(OWNER, id_of(9))] == [id_of(4), id_of(9)]
            assert await store.get(OWNER, [id_of(7)]) == []
            await store.reindex()
    assert copy.read_bytes() == (JOURNALS / "observations-1.jsonl").read_bytes()


READS = """
import asyncio, marshal, pickle, sys
from pathlib import Path

import numpy
import whoosh.writing
from chatbot.memory import MemorySystem
from chatbot.stores.observations import codec


def refuse(*_given, **_more):
    raise AssertionError("something was unpickled")


async def drive(home, cache):
    is_first = not home.exists()
    async with MemorySystem(home, settings={"observations": {"cache": str(cache)}}) as memory:
        session = await memory.create_session(["observations"], "chat")
        for number in range(60) if is_first else ():
            await session.memory.remember(f"apples and pears {number}", people=("Ada",), tags=("fruit",))
        [hit, *_] = await session.memory.search("apples")
        assert (await session.memory.recall("what about pears?")).considered
        assert await session.memory.history(hit.observation.id)
        assert await session.memory.people()
        await memory.search_sessions("apples")
        assert await memory.memory().reindex() == 60
        assert await session.memory.search("pears")
    assert list(cache.glob("*/index/seg-*"))


root = Path(sys.argv[1])
asyncio.run(drive(root / "other", root / "other cache"))  # imports everything
pickle.load = pickle.loads = pickle.Unpickler = pickle._Unpickler = pickle._load = pickle._loads = refuse
marshal.load = marshal.loads = refuse
for _ in range(2):  # the second reads what the first has left
    asyncio.run(drive(root / "memory", root / "cache"))
print("read")
"""


def test_nothing_that_is_read_is_ever_unpickled(tmp_path: Path) -> None:
    command = [sys.executable, "-c", READS, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "read\n"), done.stdout + done.stderr

"""Machines that live with one identity: they remember, talk, forget and sync at random, and are killed anywhere."""

import asyncio
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, Self

from chatbot.config import MaintenanceSettings
from chatbot.memory import MemorySystem
from chatbot.models import ScriptedModel
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.errors import StoreError
from chatbot.stores.home import Home
from chatbot.stores.observation import STATUSES
from chatbot.transfer.backups import backup, restore
from chatbot.transfer.sync import exchange, sync
from chatbot.transfer.sync_place import FolderPlace, ServerAnswer, ServerPlace, SyncReport, Visitor
from chatbot.transfer.sync_storage import Storage, digest_of_storage
from tests.clock import Clock
from tests.talk import chat_of

STORES = ["basic_session", "observations"]
COUNTED = ("mention_count", "confirmed_count")
_TRACED = ("transfer/sync.py", "transfer/sync_storage.py", "transfer/union.py", "observations/log_union.py")


class Killed(BaseException):
    """The process ended here."""


class KilledAt:
    """Ends what runs in it at the given line of the sync, counted from the first; `lines` tells how many there were."""

    def __init__(self, line: int) -> None:
        self._left = line
        self.lines = 0

    def __enter__(self) -> Self:
        self._executor = ThreadPoolExecutor(2)
        asyncio.get_running_loop().set_default_executor(self._executor)
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
        self._executor.shutdown()

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.endswith(_TRACED):
            return None
        if event == "line":
            self.lines += 1
            self._left -= 1
            if self._left == 0:
                raise Killed
        return self._trace


class Beside(ServerPlace):
    """Another machine as a server, without the wire between them."""

    def __init__(self, machine: "Machine") -> None:
        super().__init__(f"http://{machine.home.name if isinstance(machine.home, Path) else machine.home.identity}")
        self._machine = machine

    def _answer(self, body: dict[str, Any]) -> ServerAnswer:
        async def answered() -> ServerAnswer:
            async with self._machine.opened() as memory:
                visitor = Visitor(body["identity"], body["machine"], body["taken"], dry_run=body["dry_run"])
                return await exchange(memory, visitor, body["files"], now=self._machine.now)

        return asyncio.run(answered())


class Machine:
    """One copy of the identity, with a clock of its own."""

    def __init__(self, home: Home, ahead: timedelta, clock: Clock) -> None:
        self.home = home
        self.clock = clock
        self._ahead = ahead
        self.sessions: list[str] = []

    @property
    def folder(self) -> Path:
        """The home of a machine that keeps files."""
        assert isinstance(self.home, Path)
        return self.home

    def now(self) -> Any:
        """The time by this machine's clock, which never stands still."""
        return self.clock() + self._ahead

    def opened(self) -> MemorySystem:
        return MemorySystem(self.home, clock=self.now)

    async def sync(self, place: "Path | Machine", *, dry_run: bool = False) -> SyncReport:
        where = FolderPlace(place) if isinstance(place, Path) else Beside(place)
        async with self.opened() as memory:
            return await sync(memory, where, now=self.now, dry_run=dry_run)

    async def digest(self) -> str:
        """Digest of everything that travels."""
        async with Storage.opened(self.home) as storage:
            return await digest_of_storage(storage)

    async def rows(self) -> dict[str, Any]:
        async with self.opened() as memory:
            rows = await memory.memory().everywhere().every(sensitivities=SENSITIVITIES, statuses=STATUSES)
        return {row.id: row for row in rows}

    async def said(self) -> dict[str, list[str]]:
        async with self.opened() as memory:
            handles = [await memory.load_session(each.id, any_agent=True) for each in await memory.list_sessions()]
            return {each.id: [entry.content for entry in await each.transcript_read_all()] for each in handles}

    async def bill(self) -> int:
        async with self.opened() as memory:
            return len(memory.backend.lines("usage").all())

    async def journal(self) -> str:
        """All lines of the log of memories."""
        async with Storage.opened(self.home) as storage:
            storage.log.start_again()
            return "".join(line.decode() for _, line in storage.log.read_new())


class World:
    """Some machines and places, and what has to be true of them in the end."""

    def __init__(self, folder: Path, seed: int, machines: int, home: Callable[[Path], Home] = Path) -> None:
        self.folder, self.home = folder, home
        self.random = random.Random(seed)
        self.clock = Clock(step=timedelta(milliseconds=7))
        hours = [self.random.uniform(-12, 12) for _ in range(machines)]
        self.machines = [Machine(home(folder / f"m{n}"), timedelta(hours=at), self.clock) for n, at in enumerate(hours)]
        self.places = [folder / "stick", folder / "cloud"]
        for place in self.places:
            place.mkdir()
        self.texts: dict[str, str] = {}
        """Texts of rows by their ids."""
        self.purged: set[str] = set()
        self.forgotten: set[str] = set()
        self.said: dict[str, str] = {}
        """Sessions of messages."""
        self.taken_back: set[str] = set()
        self.back: set[tuple[str, str]] = set()
        self.deleted: set[str] = set()
        self.without_branch: set[str] = set()
        self.counted: Counter[tuple[str, str]] = Counter()
        """How often each row was mentioned and confirmed on all machines together."""
        self.calls = self.kills = self.brought_back = 0
        self._count = 0

    async def begin(self) -> None:
        """All machines become one."""
        async with self.machines[0].opened() as memory:
            await memory.memory("chat").remember(title="the beginning")
        for machine in self.machines:
            await machine.sync(self.places[0])
        for machine in self.machines:
            await machine.sync(self.places[1])

    async def live(self, steps: int) -> None:
        """Do something at random, so often."""
        for _ in range(steps):
            machine = self.random.choice(self.machines)
            self.clock.move(seconds=self.random.choice([0, 1, 60, 3600]))
            does = self.random.choices(
                [self._remember, self._correct, self._forget, self._purge, self._use, self.talk, self._take_back,
                 self._delete, self._fork, self._maintain, self._label, self._sync, self._sync_killed, self._disturb,
                 self._keep, self._bring_back],
                [12, 5, 2, 2, 3, 6, 2, 1, 1, 4, 2, 6, 6, 1, 1, 1],
            )[0]  # fmt: skip
            if does in (self._sync, self._sync_killed, self._disturb, self._keep, self._bring_back):
                await does(machine)
                continue
            before = await machine.rows()
            await does(machine)
            for row_id, row in (await machine.rows()).items():
                was = before.get(row_id)
                for name in COUNTED:
                    self.counted[row_id, name] += getattr(row, name) - (getattr(was, name) if was else 0)

    def word(self) -> str:
        """A word that nobody has said yet."""
        self._count += 1
        return f"word{self._count}x"

    async def _remember(self, machine: Machine) -> None:
        async with machine.opened() as memory:
            memories = memory.memory("chat")
            if self.texts and self.random.random() < 0.2:
                text = self.random.choice(sorted(self.texts.values()))
            else:
                text = f"The spare key of the shed hangs behind the door {self.word()}"  # alike: some are merged
            done = await memories.remember(title=text, narrative="why", type="note")
            if done.outcome == "added":
                self.texts[done.id] = text
            if self.random.random() < 0.2:
                await memories.profile_set("city", self.word())
            if self.random.random() < 0.2:
                await memories.store_fact("garden", "has", self.word(), source=done.id)

    async def _some(self, machine: Machine, *statuses: str) -> str | None:
        rows = await machine.rows()
        found = [each for each, row in rows.items() if row.status in statuses and each in self.texts]
        return self.random.choice(sorted(found)) if found else None

    async def _correct(self, machine: Machine) -> None:
        if (row_id := await self._some(machine, "active")) is None:
            return
        async with machine.opened() as memory:
            memories = memory.memory("chat")
            if self.random.random() < 0.5:
                text = f"rather {self.word()}"
                with suppress(StoreError):
                    done = await memories.remember(title=text, narrative="anew", supersedes=row_id)
                    self.texts[done.id] = text
            else:
                await memories.update(row_id, narrative=f"better {self.word()}", importance=self.random.random())

    async def _forget(self, machine: Machine) -> None:
        if (row_id := await self._some(machine, "active", "superseded")) is not None:
            async with machine.opened() as memory:
                await memory.memory("chat").forget(row_id)
            self.forgotten.add(row_id)

    async def _purge(self, machine: Machine) -> None:
        if (row_id := await self._some(machine, *STATUSES)) is not None:
            async with machine.opened() as memory:
                self.purged |= {*await memory.memory("chat").purge(row_id)}

    async def _use(self, machine: Machine) -> None:
        if (row_id := await self._some(machine, "active")) is not None:
            async with machine.opened() as memory:
                await memory.memory("chat").note_use([row_id])
                if self.random.random() < 0.3:
                    await memory.memory("chat").confirm(row_id)

    async def _session(self, machine: Machine) -> str | None:
        sessions = sorted(await machine.said())
        return self.random.choice(sessions) if sessions else None

    async def talk(self, machine: Machine) -> None:
        """Take a turn or two in some session."""
        session_id = await self._session(machine)
        async with machine.opened() as memory:
            if session_id is None or self.random.random() < 0.2:
                session = await memory.create_session(STORES, "chat")
            else:
                session = await memory.load_session(session_id, any_agent=True)
            for _ in range(self.random.choice([1, 1, 2])):
                text = f"I said {self.word()}"
                model = ScriptedModel([f"reply {self.word()}"])
                chat = chat_of(model, session, machine.home, clock=machine.now)
                await chat.turn(text)
                self.said[text] = session.id
                self.calls += 1

    async def _take_back(self, machine: Machine) -> None:
        if (session_id := await self._session(machine)) is not None:
            async with machine.opened() as memory:
                session = await memory.load_session(session_id, any_agent=True)
                dropped = [entry.content for entry in await session.transcript_drop_last(2)]
            self.taken_back |= {*dropped}
            for other in self.machines:
                if other is not machine:  # a backup may bring back what nobody else ever knew
                    said = (await other.said()).get(session_id, ())
                    self.back |= {(session_id, text) for text in dropped if text in said}

    async def _delete(self, machine: Machine) -> None:
        if (session_id := await self._session(machine)) is not None:
            said = await machine.said()
            async with machine.opened() as memory:
                [record] = [each for each in await memory.list_sessions() if each.id == session_id]
                self.purged |= {*(await memory.delete_session(session_id)).erased}
            self.deleted.add(session_id)
            self.taken_back |= {*said[session_id]}
            if record.parent and "another machine" in record.title:
                self.without_branch.add(record.parent)  # who goes on with that branch does so in what is deleted

    async def _fork(self, machine: Machine) -> None:
        if (session_id := await self._session(machine)) is not None:
            async with machine.opened() as memory:
                await memory.fork_session(session_id)

    async def _label(self, machine: Machine) -> None:
        if (session_id := await self._session(machine)) is not None:
            async with machine.opened() as memory:
                session = await memory.load_session(session_id, any_agent=True)
                await session.rename(f"title {self.word()}")
                await session.kv_set(self.random.choice("ab"), self.word())
                if self.random.random() < 0.3:
                    await session.kv_delete("a")
                if self.random.random() < 0.3:
                    await session.attach([(self.word().encode(), ".txt")])

    async def _maintain(self, machine: Machine) -> None:
        async with machine.opened() as memory:
            await memory.maintain(MaintenanceSettings(compression_min_age_days=0), whole=True)

    async def _sync(self, machine: Machine) -> None:
        await machine.sync(self._place_for(machine))

    def _place_for(self, machine: Machine) -> Path | Machine:
        others: list[Path | Machine] = [each for each in self.machines if each is not machine]
        return self.random.choice([*self.places, *self.places, *others])

    async def _sync_killed(self, machine: Machine) -> None:
        place = self._place_for(machine)
        with KilledAt(self.random.choice([200, 1000, 5000, 20000]) * 2 // self.random.randint(1, 400) + 1):
            try:
                await machine.sync(place)
            except Killed:
                self.kills += 1

    async def _disturb(self, _: Machine) -> None:
        """A file of a place is only half there for now, or one lies there that nobody wrote."""
        place = self.random.choice(self.places)
        if files := sorted(place.glob("*/*.gz")):
            path = self.random.choice(files)
            whole = path.read_bytes()
            path.write_bytes(whole[: len(whole) // 2])
            await self.random.choice(self.machines).sync(place)
            if self.random.random() < 0.5:
                path.write_bytes(whole)
            elif path.exists():
                path.unlink()
        forged = place / "0123456789ab" / "000001-00.gz"
        forged.parent.mkdir(exist_ok=True)
        forged.write_bytes(b"forged")

    async def _keep(self, machine: Machine) -> None:
        with self._kept(machine).open("w+b") as file:
            await backup(machine.home, file, name="ada", now=machine.now)

    def _kept(self, machine: Machine) -> Path:
        return self.folder / f"{self.machines.index(machine)}.kept"

    async def _bring_back(self, machine: Machine) -> None:
        """A machine is lost once all others know what it knew, and an older copy takes its place."""
        if (kept := self._kept(machine)).exists():
            await self.settle()
            machine.home = self.home(self.folder / f"back{self.brought_back}")
            with kept.open("rb") as file:
                await restore(file, "kept", machine.home, now=machine.now)
            self.brought_back += 1

    async def settle(self) -> None:
        """Everybody syncs with everything until nobody has anything new."""
        after: list[str] = []
        for _ in range(12):
            before = [await machine.digest() for machine in self.machines]
            for machine in self.machines:
                for place in self.places:
                    await machine.sync(place)
            after = [await machine.digest() for machine in self.machines]
            if before == after and len(set(after)) == 1:
                return
        raise AssertionError(f"no agreement: {after}")

    async def check(self) -> None:
        """Nothing was lost, and nothing came back."""
        rows = [await machine.rows() for machine in self.machines]
        said = [await machine.said() for machine in self.machines]
        for other in rows[1:]:
            for row_id, row in rows[0].items():
                assert other[row_id] == row, (row, other[row_id])
            assert other.keys() == rows[0].keys()
        assert all(each == said[0] for each in said[1:])
        here = {text for texts in said[0].values() for text in texts}
        for text in self.said:
            is_gone = self.said[text] in self.deleted | self.without_branch
            assert text in here or text in self.taken_back or is_gone, text
        for machine in self.machines:
            assert self.texts.keys() - self.purged <= rows[0].keys()
            assert not self.purged & rows[0].keys()
            journal = await machine.journal()
            for row_id in self.purged & self.texts.keys():
                assert f'"{self.texts[row_id]}"' not in journal or self.texts[row_id] in {
                    text for each, text in self.texts.items() if each not in self.purged
                }, self.texts[row_id]
            assert await machine.bill() == self.calls
            assert not self.deleted & said[0].keys()
        for row_id in self.forgotten - self.purged:
            assert rows[0][row_id].status != "active"
        for row_id, row in rows[0].items():
            for name in COUNTED:
                assert getattr(row, name) == self.counted[row_id, name], (name, row)
        for session_id, text in self.back:
            assert text not in said[0].get(session_id, ()), text

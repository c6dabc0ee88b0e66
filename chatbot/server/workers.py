"""`chatbot serve --workers N`: processes that share one socket, and a supervisor that answers nothing.

The supervisor imports LiteLLM and the routes once and then forks, so the workers share that memory, and one that dies
is replaced at once. It has no threads and no event loop, and opens no identity. Workers begin to accept when all are
ready. One that loses its supervisor finishes its requests and ends.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import selectors
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from chatbot.errors import ChatbotError, ConfigError
from chatbot.models import litellm_import
from chatbot.runtime import Options, Setup
from chatbot.server.access_tokens import Tokens
from chatbot.server.identities import Identities
from chatbot.server.listening import address_of, check_doors, listening
from chatbot.server.serve import FAREWELL_S, SharingServer
from chatbot.server.siblings import Siblings
from chatbot.stores.errors import StoreError

logger = logging.getLogger(__name__)

_ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_STOPS_WITHIN_S = 2.5 * FAREWELL_S
"""Longest wait for a worker that drains: requests, then turns."""
_QUICK_S = 10.0
"""A worker that lives shorter than that is replaced more slowly each time."""
_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 30.0
_READY, _FAILED, _GO = b"r", b"f", b"g"
_LONGEST_REASON = 4096


def serve_with_workers(count: int, options: Options, *, ready: Callable[[str], None]) -> int:
    """Serve until SIGTERM or Ctrl-C, and return the number of that signal. `ready` gets the address.

    Raises `ConfigError` where that many processes cannot serve: what one could not, and with metrics that are read.
    """
    setup = Setup.resolve(options)
    config = setup.settings.combined()
    _check(prometheus=config.telemetry.prometheus)
    check_doors(config.server.host, Tokens.of(setup.server_home))
    with (
        listening(config.server.host, config.server.port) as sock,
        tempfile.TemporaryDirectory(prefix="chatbot-") as folder,
    ):
        if not config.model.name.startswith(("local/", "scripted")):
            litellm_import.load()
        address = address_of(config.server.host, sock)
        return _Supervisor(count, options, sock, Path(folder)).run(lambda: ready(address))


def _check(*, prometheus: bool) -> None:
    if prometheus:
        raise ConfigError(
            "[telemetry] prometheus reads the numbers of one process: with --workers send them to a collector, "
            "telemetry.endpoint"
        )


@dataclass(slots=True)
class _Worker:
    number: int
    pid: int
    control: socket.socket
    begun_at: float
    is_ready: bool = False
    is_going: bool = False


class _Supervisor:
    def __init__(self, count: int, options: Options, sock: socket.socket, folder: Path) -> None:
        self._count = count
        self._options = options
        self._sock = sock
        self._folder = folder
        self._workers: dict[int, _Worker] = {}
        self._due: dict[int, float] = {}
        """When to start a worker again, by its number."""
        self._delays: dict[int, float] = {}
        self._selector = selectors.DefaultSelector()

    def run(self, ready: Callable[[], None]) -> int:
        """Keep the workers running until a signal comes, then stop them, and return it."""
        gc.collect()
        gc.freeze()  # pages that are not written to stay shared
        with _signals() as woken:
            self._selector.register(woken, selectors.EVENT_READ)
            try:
                for number in range(self._count):
                    self._start(number)
                return self._watch(woken, ready)
            finally:
                self._stop(woken)

    def _watch(self, woken: socket.socket, ready: Callable[[], None]) -> int:
        is_open = False
        while True:
            for key, _ in self._selector.select(self._pause()):
                if key.fileobj is woken:
                    return woken.recv(1)[0]
                self._hear(key.data, is_open=is_open)
            for number in [each for each, due in self._due.items() if due <= time.monotonic()]:
                del self._due[number]
                self._start(number)
            if not is_open and len(self._workers) == self._count and all(e.is_ready for e in self._workers.values()):
                is_open = True
                ready()
            if is_open:
                self._let_go()

    def _pause(self) -> float | None:
        return max(0.0, min(self._due.values()) - time.monotonic()) if self._due else None

    def _let_go(self) -> None:
        for worker in self._workers.values():
            if worker.is_ready and not worker.is_going:
                worker.is_going = True
                with suppress(OSError):  # it has died: its end is heard next
                    worker.control.send(_GO)

    def _hear(self, worker: _Worker, *, is_open: bool) -> None:
        """Take in what a worker says, or that it has ended. Raises `ConfigError` for one that cannot begin."""
        said = _received(worker.control)
        if said == _READY:
            worker.is_ready = True
            return
        self._drop(worker)
        reason = said[1:].decode(errors="replace") or "it ended before it was ready"
        if not is_open:
            raise ConfigError(reason)
        lived = time.monotonic() - worker.begun_at
        delay = self._delays.get(worker.number, 0.0) if lived < _QUICK_S else 0.0
        self._delays[worker.number] = min(_LONGEST_DELAY_S, max(_FIRST_DELAY_S, 2 * delay))
        self._due[worker.number] = time.monotonic() + delay
        because = f": {reason}" if said else ""
        logger.warning("worker %d (process %d) ended and is replaced%s", worker.number, worker.pid, because)

    def _start(self, number: int) -> None:
        ours, its = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            ours.close()
            self._become(number, its)
        its.close()
        worker = self._workers[number] = _Worker(number, pid, ours, time.monotonic())
        self._selector.register(ours, selectors.EVENT_READ, worker)

    def _drop(self, worker: _Worker) -> None:
        self._selector.unregister(worker.control)
        worker.control.close()
        del self._workers[worker.number]
        os.waitpid(worker.pid, 0)

    def _stop(self, woken: socket.socket) -> None:
        """Have the workers finish, and end those that take too long, or all of them at a second signal."""
        self._signal(signal.SIGTERM)
        until = time.monotonic() + _STOPS_WITHIN_S
        while self._workers:
            events = self._selector.select(max(0.0, until - time.monotonic()))
            if not events or any(key.fileobj is woken for key, _ in events):
                self._signal(signal.SIGKILL)
                until = time.monotonic() + _STOPS_WITHIN_S
                with suppress(BlockingIOError):
                    woken.recv(64)
            for key, _ in events:
                if key.fileobj is not woken and _received(key.data.control) != _READY:
                    self._drop(key.data)
        self._selector.close()

    def _signal(self, number: signal.Signals) -> None:
        for worker in self._workers.values():
            with suppress(ProcessLookupError):
                os.kill(worker.pid, number)

    def _become(self, number: int, control: socket.socket) -> NoReturn:
        """Be a worker, in the forked process."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for each in _ENDINGS:
                signal.signal(each, signal.SIG_DFL)
            self._selector.close()
            for other in self._workers.values():
                other.control.close()  # it must end with the supervisor
            siblings = Siblings(self._folder, number, self._count)
            asyncio.run(_work(self._options, self._sock, control, siblings))
            code = 0
        except (ChatbotError, StoreError) as error:
            with suppress(OSError):
                control.send(_FAILED + str(error).encode()[:_LONGEST_REASON])
        except (KeyboardInterrupt, asyncio.CancelledError):
            pass
        except BaseException:
            logger.exception("a worker failed")
        finally:
            os._exit(code)


async def _work(options: Options, sock: socket.socket, control: socket.socket, siblings: Siblings) -> None:
    """Get ready, wait until all workers are, and serve until SIGTERM or the end of the supervisor."""
    control.setblocking(False)  # noqa: FBT003 - that is its name
    loop = asyncio.get_running_loop()
    async with Identities(options, siblings=siblings) as identities:
        await identities.warm()
        await loop.sock_sendall(control, _READY)
        if await loop.sock_recv(control, 1) != _GO:
            return
        server = SharingServer(identities)
        watching = asyncio.create_task(_leave_with(control, server))
        try:
            await server.serve(sockets=[sock])
        finally:
            watching.cancel()


async def _leave_with(control: socket.socket, server: SharingServer) -> None:
    with suppress(OSError):
        while await asyncio.get_running_loop().sock_recv(control, 1):
            pass
    server.should_exit = True


def _received(control: socket.socket) -> bytes:
    try:
        return control.recv(1 + _LONGEST_REASON)
    except ConnectionResetError:
        return b""


@contextmanager
def _signals() -> Iterator[socket.socket]:
    """Yield a socket that gets the number of each signal that asks to end."""
    woken, waking = socket.socketpair()
    for each in (woken, waking):
        each.setblocking(False)  # noqa: FBT003 - that is its name
    former = [(each, signal.signal(each, lambda *_: None)) for each in _ENDINGS]
    signal.set_wakeup_fd(waking.fileno())
    try:
        yield woken
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in former:
            signal.signal(number, handler)
        woken.close()
        waking.close()

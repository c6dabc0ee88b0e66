"""A thread that is woken sooner than those of an executor: for work so short that the way there and back counts.

There is one in the process, and only what finds it vacant goes to it; the rest goes to the executor of the event loop.
So work that takes long, or waits for a lock, holds up nothing else. A forked child starts its own.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")
_Inbox = SimpleQueue[tuple[asyncio.AbstractEventLoop, asyncio.Future[Any], Callable[[], Any]]]


def in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """What `work` will return or raise. It is done even if nobody waits for it, unless the process ends before."""
    loop = asyncio.get_running_loop()
    try:
        inbox = _vacant.pop()
    except IndexError:
        return loop.run_in_executor(None, work)
    done: asyncio.Future[T] = loop.create_future()
    (inbox or _start()).put((loop, done, work))
    return done


def _start() -> _Inbox:
    inbox: _Inbox = SimpleQueue()
    Thread(target=_serve, args=(inbox,), name="fast thread", daemon=True).start()
    return inbox


def _serve(inbox: _Inbox) -> None:
    while True:
        _serve_one(inbox)


def _serve_one(inbox: _Inbox) -> None:
    loop, done, work = inbox.get()
    error = answer = None
    try:
        answer = work()
    except BaseException as raised:  # noqa: BLE001 - whoever waits shall have it
        error = raised
    _vacant.append(inbox)
    with suppress(RuntimeError):  # the loop was closed, so nobody waits any more
        loop.call_soon_threadsafe(_settle, done, answer, error)
    del error  # whose traceback leads back here


def _settle(done: asyncio.Future[T], answer: T, error: BaseException | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(answer)
    else:
        done.set_exception(error)


def _begin_anew() -> None:
    _vacant[:] = [None]


_vacant: list[_Inbox | None] = [None]
"""Where the thread takes its work from, while it has none; None before it was started, nothing while it is busy."""
os.register_at_fork(after_in_child=_begin_anew)

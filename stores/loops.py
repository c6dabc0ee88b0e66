"""Asyncio in several threads with a loop each: waiting across loops, and commits of many tasks at once.

A future, task or lock of asyncio belongs to one loop and may only be used in its thread. Objects that several loops
share use this module instead. Waiters of a closed loop are skipped.
"""

import asyncio
import logging
import os
import threading
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from chatbot.stores.records import reason_of

logger = logging.getLogger(__name__)

Waiter = asyncio.Future[None]
Owner = TypeVar("Owner")
Given = ParamSpec("Given")
Result = TypeVar("Result")
Item = TypeVar("Item")
Batch = list[tuple[Item, Waiter | None]]
LONGEST_END_S = 70.0
"""Longest wait of a cancelled caller for its work: longer than a database may take to answer."""
_LONGEST_WAIT_S = 5.0
"""Longest wait for a task of another loop to end."""


def in_thread(
    method: Callable[Concatenate[Owner, Given], Result],
) -> Callable[Concatenate[Owner, Given], Coroutine[Any, Any, Result]]:
    """Make a blocking method a coroutine that runs in a thread."""

    @wraps(method)
    async def hop(self: Owner, /, *args: Given.args, **named: Given.kwargs) -> Result:
        return await asyncio.to_thread(method, self, *args, **named)

    return hop


async def in_own_task(work: Callable[[], Awaitable[Result]]) -> Result:
    """Return the result of a plug-in's work, which may cancel its own task; ours then gets a `CancelledError`."""

    async def contain() -> Result | SystemExit | KeyboardInterrupt:
        try:
            return await work()
        except (SystemExit, KeyboardInterrupt) as error:  # raised in a task, they would end the event loop
            return error
        except (Exception, asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # such as a panic of Rust
            raise RuntimeError(reason_of(error)) from error

    result = await asyncio.create_task(contain())
    if isinstance(result, SystemExit | KeyboardInterrupt):
        raise result
    return result


def is_cancelled() -> bool:
    """Return whether the running task was asked to end; False if what it awaits raised `CancelledError` by itself."""
    task = asyncio.current_task()
    return task is None or bool(task.cancelling())


def is_failure(error: BaseException) -> bool:
    """Return whether a plug-in failed: it was neither cancelled from outside nor interrupted."""
    if isinstance(error, asyncio.CancelledError):
        return not is_cancelled()
    return not isinstance(error, KeyboardInterrupt | GeneratorExit)


def new_waiter() -> Waiter:
    """Return a future of the running loop, for `wake`."""
    return asyncio.get_running_loop().create_future()


def wake(waiters: Iterable[Waiter], error: BaseException | None = None) -> None:
    """Settle the waiters, each in its own loop. Callable from any thread; one call a loop."""
    by_loop: defaultdict[asyncio.AbstractEventLoop, list[Waiter]] = defaultdict(list)
    for waiter in waiters:
        by_loop[waiter.get_loop()].append(waiter)
    for loop, those in by_loop.items():
        with suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(_settle, those, error)


async def cancel_and_wait(task: asyncio.Task[None]) -> None:
    """Cancel a task of any loop and return once it has ended; at once if its loop has stopped, soon if it is stuck."""
    loop = task.get_loop()
    others = {None, *(each.ident for each in threading.enumerate())} - {threading.get_ident()}
    if loop is asyncio.get_running_loop():
        task.cancel()
        await asyncio.wait([task])
    elif loop.is_running() and getattr(loop, "_thread_id", None) in others:  # else it is the loop of a forked parent
        ended = asyncio.run_coroutine_threadsafe(cancel_and_wait(task), loop)
        await asyncio.wait([asyncio.wrap_future(ended)], timeout=_LONGEST_WAIT_S)  # it may be stopping


async def run_apart(call: Callable[..., Result], *args: Any) -> Result:
    """Return the result of a long blocking call in its own thread, which keeps no interrupted program from exiting."""
    done, results = new_waiter(), list[Result]()

    def run() -> None:
        try:
            results.append(call(*args))
        except BaseException as error:  # noqa: BLE001 - it is raised again where the call is waited for
            wake([done], error)
        else:
            wake([done])

    threading.Thread(target=run, name="apart", daemon=True).start()
    await done
    return results[0]


async def to_its_end(work: Coroutine[Any, Any, Result], *, longest_s: float = LONGEST_END_S) -> Result:
    """Return the result of work that continues if we are cancelled; the cancellation is raised once it is done.

    Work that does not end within `longest_s` is cancelled: a store that hangs does not keep the program from ending.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        ended, _ = await asyncio.wait([task], timeout=longest_s)
        if ended:
            task.result()  # raises its error
        else:
            task.cancel()
        raise


class LoopsLock:
    """Like `asyncio.Lock`, first come first served, for tasks of any number of event loops."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._is_locked = False
        self._waiting: deque[Waiter] = deque()

    def locked(self) -> bool:
        """Return True if the lock is held."""
        return self._is_locked

    async def acquire(self) -> None:
        """Acquire the lock."""
        with self._guard:
            if not self._is_locked:
                self._is_locked = True
                return
            turn = new_waiter()
            self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not self._withdraw(turn) and not turn.cancelled():
                self.release()  # it was ours already
            raise

    def release(self) -> None:
        """Pass the lock to the longest waiter."""
        with self._guard:
            while self._waiting:
                turn = self._waiting.popleft()
                try:
                    turn.get_loop().call_soon_threadsafe(self._grant, turn)
                except RuntimeError:  # the loop was closed
                    continue
                return
            self._is_locked = False

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.release()

    def _grant(self, turn: Waiter) -> None:
        if turn.done():
            self.release()  # cancelled before its turn came
        else:
            turn.set_result(None)

    def _withdraw(self, turn: Waiter) -> bool:
        with self._guard:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return True
        return False


def _settle(waiters: Iterable[Waiter], error: BaseException | None) -> None:
    for waiter in waiters:
        if waiter.done():
            continue
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)


class GroupCommit(Generic[Item]):
    """Runs `commit(items)` in a thread, one at a time, for items from any number of tasks and loops.

    Items that arrive during a commit are committed together by the next one: fifty at once cost two commits.
    If `commit` returns true, `tidy()` runs before the next one, after the callers were answered.
    """

    def __init__(self, commit: Callable[[list[Item]], object], tidy: Callable[[], None] = lambda: None) -> None:
        self._commit = commit
        self._tidy = tidy
        self._lock, self._working = threading.Lock(), threading.Lock()
        self._waiting: Batch[Item] = []
        self._finishing: list[Waiter] = []
        self._is_busy = False

    @property
    def idle(self) -> bool:
        """True if no commit is running or waiting."""
        return not self._is_busy

    async def add(self, item: Item) -> None:
        """Return once `item` is committed, in order; raises what its commit raised. Cancelling does not withdraw it."""
        done = new_waiter()
        self._put(item, done)
        await done

    def post(self, item: Item) -> None:
        """Have `item` committed, without waiting for it. A failure is logged."""
        self._put(item)

    async def finish(self) -> None:
        """Return once no commit is running or waiting."""
        with self._lock:
            if not self._is_busy:
                return
            done = new_waiter()
            self._finishing.append(done)
        await done

    def _put(self, item: Item, done: Waiter | None = None) -> None:
        with self._lock:
            self._waiting.append((item, done))
            if self._is_busy:
                return
            self._is_busy = True
        try:
            _pool[0].submit(self._work)
        except RuntimeError:  # no thread can be started: commit here, or all later items would wait forever
            self._work()

    def _next(self) -> tuple[Batch[Item], list[Waiter]]:
        """Return the items to commit next, and the waiters for an empty queue."""
        with self._lock:
            batch, self._waiting = self._waiting, []
            self._is_busy = bool(batch)
            if batch:
                return batch, []
            finished, self._finishing = self._finishing, []
        return batch, finished

    def _work(self) -> None:
        """Commit until nothing is left. Callers are answered before `tidy`; without it, once `idle` is set."""
        with self._working:  # a call whose thread could not be started stays queued: a later thread runs it
            batch, _ = self._next()  # also what came while this thread began
            while batch:
                error, is_untidy = self._commit_batch(batch)
                waiters = [done for _, done in batch if done is not None]
                if is_untidy:
                    wake(waiters)
                    waiters = []
                    self._tidy_safely()
                batch, finished = self._next()
                wake(waiters, error)
                wake(finished)

    def _commit_batch(self, batch: Batch[Item]) -> tuple[BaseException | None, bool]:
        try:
            return None, bool(self._commit([item for item, _ in batch]))
        except BaseException as error:  # noqa: BLE001 - it is raised in the waiters
            if all(done is None or done.done() for _, done in batch):
                logger.warning("a background write failed: %s", error)
            return error, False

    def _tidy_safely(self) -> None:
        try:
            self._tidy()
        except BaseException:  # the next callers must be answered
            logger.exception("tidying up after a commit failed")


_MOST_THREADS = 16
_pool: list[ThreadPoolExecutor] = []
"""Threads that belong to no loop, so that commits are completed even if their loop ends."""


def _begin_anew() -> None:
    """Begin with new threads: a forked child has none of its parent's."""
    _pool[:] = [ThreadPoolExecutor(_MOST_THREADS, "store thread")]


_begin_anew()
os.register_at_fork(after_in_child=_begin_anew)

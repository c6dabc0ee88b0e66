"""Runs a command and turns its end into an exit code, also if an error, Ctrl-C or SIGTERM ends it."""

import argparse
import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Coroutine
from contextlib import nullcontext
from enum import IntEnum
from typing import Any, TypeVar

from chatbot import errors
from chatbot.cli.arguments import COMMANDS, load_function
from chatbot.cli.output import error_text, on_signal, printable, reserved_output, say_error, wrapped
from chatbot.stores import errors as store_errors
from chatbot.stores.records import reason_of


class Exit(IntEnum):
    """Exit codes of the command line."""

    OK = 0
    """Everything that was asked for was done."""
    FAILED = 1
    """Any failure without a code of its own, such as a refused change; also `doctor` with findings."""
    USAGE = 2
    """The command line is invalid, or cannot be used here, such as a chat without a terminal."""
    CONFIG = 3
    """A setting, a file of settings, or a store plug-in is wrong."""
    NOT_FOUND = 4
    """The identity, session, observation, project or token does not exist, or several match; or the session expired
    or belongs to another agent."""
    MODEL = 5
    """The model could not answer."""
    BUDGET = 6
    """The call was not made because it could exceed a limit."""
    STORAGE = 7
    """The disk refused, a file is damaged or of a later release, or another process holds it."""
    INTERRUPTED = 130
    """Ctrl-C."""
    TERMINATED = 143
    """SIGTERM, or the terminal was closed."""


_CODES: dict[type[Exception], Exit] = {
    errors.ConfigError: Exit.CONFIG,
    errors.IdentityError: Exit.NOT_FOUND,
    errors.UnknownToken: Exit.NOT_FOUND,
    errors.DamagedSession: Exit.STORAGE,
    errors.SessionError: Exit.NOT_FOUND,
    errors.ModelError: Exit.MODEL,
    errors.BudgetExceeded: Exit.BUDGET,
    errors.ChatbotError: Exit.FAILED,
    store_errors.UnknownStore: Exit.CONFIG,
    store_errors.BrokenStore: Exit.CONFIG,
    store_errors.InvalidSettings: Exit.CONFIG,
    store_errors.InvalidValue: Exit.USAGE,
    store_errors.OtherEmbedder: Exit.CONFIG,
    store_errors.UnsupportedOperation: Exit.FAILED,
    store_errors.UnknownObservation: Exit.NOT_FOUND,
    store_errors.UnknownProject: Exit.NOT_FOUND,
    store_errors.ConflictingChange: Exit.FAILED,
    store_errors.AccessDenied: Exit.FAILED,
    store_errors.StoreError: Exit.STORAGE,
}


def exit_code(error: errors.ChatbotError | store_errors.StoreError) -> Exit:
    """Return the exit code of an error, by its nearest class."""
    return next(_CODES[kind] for kind in type(error).__mro__ if kind in _CODES)


T = TypeVar("T")


def cancel_on_signals() -> None:
    """Make SIGTERM and SIGHUP cancel the running task, so that everything is closed and no draft or process is left.

    Only the first signal cancels it: a shell sends SIGHUP again. Under `nohup` SIGHUP stays ignored.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    if task is not None:
        loop.add_signal_handler(signal.SIGTERM, lambda: task.cancelling() or task.cancel())
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, signal.raise_signal, signal.SIGTERM)


async def until_interrupted(work: Coroutine[Any, Any, T], *, is_interrupted: bool = False) -> T | None:
    """Return the outcome of `work`; None if Ctrl-C cancelled it, or had come before (`is_interrupted`)."""
    task = asyncio.create_task(work)
    if is_interrupted:
        task.cancel()
    loop, caller = asyncio.get_running_loop(), asyncio.current_task()

    def stop(*_: object) -> None:
        task.cancel()
        loop.call_soon_threadsafe(lambda: None)  # wakes the loop

    try:
        with on_signal(signal.SIGINT, stop):
            return await task
    except asyncio.CancelledError:
        if caller is not None and caller.cancelling():  # by SIGTERM
            raise
        return None


def run(args: argparse.Namespace) -> int:
    """Run the parsed command and return its exit code; errors become a message."""
    if not (hook_log := logging.getLogger("chatbot.hooks.bus")).handlers:
        hook_log.addHandler(logging.NullHandler())  # the chat shows its messages as notices
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # it logs each attempt; our own error tells of the failure
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(TerminalFormatter("chatbot: %(message)s"))
    try:
        with reserved_output() if args.json and args.command else nullcontext():
            code = int(_run_in_loop(args) or Exit.OK)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except asyncio.CancelledError:
        return Exit.TERMINATED
    except BrokenPipeError:
        # The reader has closed the pipe; the interpreter must not fail again when it flushes.
        sys.stdout = None
        return Exit.OK
    except (errors.ChatbotError, store_errors.StoreError) as error:
        say_error(error, as_json=args.json)
        return exit_code(error)
    except OSError as error:
        sys.stdout = None  # it may be what failed
        error.filename = error.filename or "standard output"
        say_error(error, as_json=args.json)
        return Exit.STORAGE
    else:
        return code


def _run_in_loop(args: argparse.Namespace) -> Any:
    try:
        return asyncio.run(run_command(args))
    except (MemoryError, RuntimeError) as error:  # also of the loop's own closing, which starts a thread
        if isinstance(error, RuntimeError) and "new thread" not in str(error):
            raise
        advice = "close other programs, or raise the limits that `ulimit -a` shows"
        raise errors.ChatbotError(f"no memory or thread is left ({reason_of(error)}): {advice}") from error


async def run_command(args: argparse.Namespace) -> Any:
    """Run the parsed command and return its `Exit`, or None if all went well. Errors are raised."""
    cancel_on_signals()
    command = load_function(COMMANDS[args.command].runs if args.command else "repl.loop:run")
    if not gc.isenabled():  # `prepare_process` disabled it while modules load
        gc.freeze()
        gc.enable()
    return await command(args)


class TerminalFormatter(logging.Formatter):
    """Removes characters that control a terminal from log lines, which may quote names and contents of files."""

    def format(self, record: logging.LogRecord) -> str:
        """Override `Formatter`."""
        if isinstance(record.args, tuple):
            args = tuple(error_text(each) if isinstance(each, OSError) else each for each in record.args)
            record = logging.makeLogRecord(vars(record) | {"args": args})  # other handlers get the error itself
        return wrapped(printable(super().format(record)), to=sys.stderr)

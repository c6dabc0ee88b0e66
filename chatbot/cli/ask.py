"""`chatbot ask`: one question, one answer. The answer goes to standard output, notices to standard error."""

import argparse
import asyncio
import sys
from collections.abc import Sequence

from chatbot.attachments.read import Upload
from chatbot.chat.events import Notice, TurnEvent
from chatbot.chat.receipts import memory_line
from chatbot.cli.from_arguments import discard_empty, hints_about_model, open_session, options_of, upload_from_file
from chatbot.cli.output import read_piped, say_json, say_part, warn
from chatbot.cli.run import Exit, until_interrupted
from chatbot.messages import TextDelta
from chatbot.runtime import Runtime
from chatbot.stores.errors import InvalidValue
from chatbot.stores.records import LONGEST_CONTENT


async def run(args: argparse.Namespace) -> Exit | None:
    """Ask, and print the reply or, with `--json`, the receipt."""
    if args.resume == "":
        raise InvalidValue("name a session after -r: ask offers no list to choose from")
    text, piped = read_question(args.text)
    if not (text.strip() or args.attach):
        raise InvalidValue("no question: pass it as an argument or on standard input")
    files = [*map(upload_from_file, args.attach), *piped]
    async with Runtime(options_of(args)) as runtime:
        code = await _ask(runtime, args, text, files)
    for failure in runtime.hooks.last_failures:
        warn(failure)
    return code


async def _ask(runtime: Runtime, args: argparse.Namespace, text: str, files: Sequence[Upload]) -> Exit | None:
    runtime.warm()
    is_first = not (args.json or runtime.uses_tools) and not await runtime.memory.list_sessions(limit=1)
    if is_first and not await runtime.why_not_installed():
        for hint in hints_about_model(runtime, "chatbot setup", "chatbot memory"):
            warn(hint)
    session, is_new = await open_session(runtime, args)
    copied = await session.transcript_read_last(1) if args.fork is not None and session else []
    if not args.json and (warning := runtime.warning(session)):
        warn(warning)
    streams = args.stream and not args.json
    printer, receipt = Printer(streams=streams), None
    try:
        receipt = await until_interrupted(runtime.chat(session).turn(text, printer, attachments=files))
    finally:
        if receipt is None and is_new:
            await discard_empty(runtime, session, copied)
        printer.end()
    if printer.write_error is not None:
        raise printer.write_error
    if receipt is None:
        return Exit.INTERRUPTED
    if args.json:
        is_kept = not (args.ephemeral or runtime.warning(session) or receipt.lost)
        say_json(receipt.as_json() | {"reply": receipt.reply, "kept": is_kept})
    elif not streams:
        say_part(f"{receipt.reply}\n")
    if not args.json and "withheld" in receipt.memory:
        warn(memory_line(receipt.memory))
    return Exit.STORAGE if receipt.lost else None


def read_question(words: list[str]) -> tuple[str, list[Upload]]:
    """Return the question, and standard input beside it as a file: others may have written it. `-` reads only that."""
    piped = "" if sys.stdin.isatty() and "-" not in words else read_piped(LONGEST_CONTENT)
    said = " ".join(word for word in words if word != "-")
    if said.strip() and piped.strip():
        return said, [Upload("standard input", piped.encode())]
    return said or piped.rstrip("\n"), []


class Printer:
    """Prints the text of a reply as it arrives, and notices; in a pipe, notices wait for the end of the text."""

    def __init__(self, *, streams: bool) -> None:
        self._streams = streams
        self._has_written = False
        self._notices: list[str] = []
        self.write_error: OSError | None = None

    def __call__(self, event: TurnEvent) -> None:
        """Print text of the reply; keep a notice until it can be printed."""
        if isinstance(event, TextDelta) and self._streams:
            try:
                say_part(event.text)
            except OSError as error:  # the pipe was closed, or the disk is full: the turn stops, as with Ctrl-C
                self._has_written, self.write_error = False, error
                raise asyncio.CancelledError from error
            self._has_written = True
        elif isinstance(event, Notice):
            self._notices.append(event.text)
            if sys.stdout.isatty() or not self._has_written:
                self.end()

    def end(self) -> None:
        """End the line of the text, and print the notices that wait."""
        if self._has_written:
            say_part("\n")
            self._has_written = False
        while self._notices:
            warn(self._notices.pop(0))

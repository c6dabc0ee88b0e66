"""Exports of sessions and memories, to files or standard output, and imports."""

import argparse
import json
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

from chatbot.cli.bind import given_of, select_sessions
from chatbot.cli.memory.command import VerbRun
from chatbot.cli.output import progress, reporting, say, say_json, say_result, say_results, say_unchanged, warn
from chatbot.hooks.capture import exchange_measure
from chatbot.memory import MemorySystem, SessionRecord
from chatbot.operation import declared_parameters
from chatbot.operations import MemoryFilter
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.errors import DamagedFile, InvalidValue, StoreError, UnsupportedOperation
from chatbot.stores.fields import how_many
from chatbot.stores.files import FILE_MODE, FOLDER_MODE, writing
from chatbot.stores.observation import STATUSES
from chatbot.stores.records import expand_home
from chatbot.transfer import exports
from chatbot.transfer.importer import Importer, ImportReport
from chatbot.transfer.sources import open_source

_FORMS = {suffix: form for form, suffix in exports.SUFFIXES.items()} | {".markdown": "markdown"}
_MOST_SHOWN = 20
_NON_WORDS = re.compile(r"[^\w\u0300-\u036f\u0591-\u05bd\u064b-\u0670\u0730-\u07b0\u0900-\u109f\u1780-\u17d3]+")


async def export(run: VerbRun) -> None:
    """Export one session to standard output or a file, several to a folder, or any number to a file of JSON lines."""
    memory, args = run.system, run.args
    records = await select_sessions(memory, args)
    if args.output == Path("-"):
        args.output = None
    form = args.format or (_FORMS.get(args.output.suffix.lower(), "markdown") if args.output else "markdown")
    if not records:
        raise InvalidValue("no sessions match: nothing was written")
    if args.dry_run:
        _report_files(records, [], form, args)
    elif args.output is None:
        await _print(memory, records, form, args)
    elif form == "jsonl" and args.output.suffix.lower() in _FORMS and not args.output.is_dir():
        _report_files(records, [await _bundle(memory, records, args)], form, args)
    else:
        await _write(memory, records, form, args)


async def import_(run: VerbRun) -> None:
    """Import each path and report the result. The first refused one is raised at the end."""
    setup, args, beside = run.setup, run.args, run.setup.settings.plugins_beside
    reports, failed = list[ImportReport](), list[StoreError]()
    with reporting(reports, lambda: say_results(args, reports, _say_imported)):
        for path in args.paths:
            with progress(f"importing {path.name}") as advance:
                importer = Importer(
                    run.system,
                    agent=setup.agent,
                    agents={name: agent.memory for name, agent in setup.config.agents.items()},
                    sensitivity=args.sensitivity,
                    trust=args.trust,
                    include_purged=args.include_purged,
                    remembers=setup.observations is not None,
                    measure=exchange_measure(setup.config, setup.agent, beside=beside) if args.exchanges else None,
                    dry_run=args.dry_run,
                    progress=advance,
                )
                try:
                    reports.append(await importer.run(open_source(expand_home(path))))
                except (InvalidValue, DamagedFile) as error:
                    failed.append(error)
        for each in failed[1:]:
            warn(str(each))
        if failed:
            raise failed[0]


async def _print(memory: MemorySystem, records: Sequence[SessionRecord], form: str, args: argparse.Namespace) -> None:
    if len(records) > 1:
        raise InvalidValue(f"these are {len(records)} sessions: name a folder or a .jsonl file for them with -o")
    exported = await _export(memory, records[0], args)
    _say_content(partial(exports.render_session, exported), form, args)


async def _write(memory: MemorySystem, records: Sequence[SessionRecord], form: str, args: argparse.Namespace) -> None:
    """Write a file for each session: the named file, or files in the named folder."""
    written: list[Path] = []
    paths = _targets(records, expand_home(args.output), exports.SUFFIXES[form])
    with reporting(written, lambda: _report_files(records, written, form, args)):
        for record, path in zip(records, paths, strict=True):
            exported = await _export(memory, record, args)
            with new_file(path, force=args.force) as file:
                file.write(exports.render_session(exported, form).encode())
            written.append(path)


async def _bundle(memory: MemorySystem, records: Sequence[SessionRecord], args: argparse.Namespace) -> Path:
    """Write all sessions to one file; with `--project` or `--all` also memories that belong to no session."""
    path: Path = expand_home(args.output)
    loose = None
    if args.memories and (args.with_archived or args.project):
        with suppress(UnsupportedOperation):
            loose = await exports.export_loose(memory, args.project)
    parts = len(records) + (loose is not None)
    with progress("exporting") as advance, new_file(path, force=args.force) as file:
        for done, record in enumerate(records, 1):
            exported = await _export(memory, record, args)
            file.write(exports.render_session(exported, "jsonl", left=parts - done).encode())
            if advance:
                advance(done, len(records))
        if loose is not None:
            file.write(exports.render_memories(loose, "jsonl").encode())
    return path


@contextmanager
def new_file(path: Path, *, force: bool | None = None) -> Iterator[BinaryIO]:
    """Yield a private file that appears once it is complete. Raises `InvalidValue` if it exists, unless `force`.

    `force` is None for a command without `--force`, which the error then does not name.
    """
    if path.exists() and not path.is_file():  # such as /dev/null, which root could replace
        raise InvalidValue(f"{path} is not a file: name another one")
    if path.exists() and not force:
        otherwise = "" if force is None else ", or overwrite it with --force"
        raise InvalidValue(f"{path} already exists: name another file{otherwise}")
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with writing(path):
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
    finally:
        with suppress(OSError):  # what refused the file refuses this, too
            draft.unlink()


def _targets(records: Sequence[SessionRecord], output: Path, suffix: str) -> list[Path]:
    """Return a file for each session: `output`, or files in it if it is or becomes a folder."""
    if len(records) == 1 and not output.is_dir() and output.suffix.lower() in _FORMS:
        return [output]
    with writing(output):
        output.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    return [output / _file_name(record, suffix) for record in records]


def _file_name(record: SessionRecord, suffix: str) -> str:
    """Return a file name that identifies the session, whatever its title."""
    title = _NON_WORDS.sub("-", record.title).strip("-")[:60]  # words have vowel signs, which `\w` lacks
    return f"{record.used_at:%Y-%m-%d}-{title or 'untitled'}-{record.id[-6:]}{suffix}"


def _say_content(render: Callable[[str], str], form: str, args: argparse.Namespace) -> None:
    """Print an export, unchanged in a pipe; with `--json` the records of its bundle."""
    if args.json:
        say_json([json.loads(line) for line in render("jsonl").split("\n") if line])
    else:
        (say if sys.stdout.isatty() else say_unchanged)(render(form).removesuffix("\n"))


def _report_files(records: Sequence[SessionRecord], paths: Sequence[Path], form: str, args: argparse.Namespace) -> None:
    if args.json:
        ids, files = [record.id for record in records], list(map(str, paths))
        say_json({"sessions": ids, "format": form, "files": files, "dry_run": args.dry_run})
        return
    for record in records if args.dry_run else ():
        say(f"would export {record.id} {record.title}".rstrip())
    for path in paths:
        say(f"wrote {path}")


async def _export(memory: MemorySystem, record: SessionRecord, args: argparse.Namespace) -> exports.SessionExport:
    exported = await exports.export_session(memory, record.id, memories=args.memories)
    if exported.redacted:
        warn(f"secrets were removed from the export: {', '.join(exported.redacted)}")
    return exported


def _say_imported(report: ImportReport) -> None:
    imported = "would be imported" if report.dry_run else "imported"
    counts = (
        (len(report.sessions), "session", imported),
        (report.memories, "memory", imported),
        (report.exchanges, "exchange", "would be remembered" if report.dry_run else "remembered"),
        (report.facts, "fact", imported),
        (report.changed, "memory", "changed"),
        (report.already, "item", "already here, or given twice"),
    )
    is_empty = not report.skipped and not any(count for count, *_ in counts)
    say(f"{report.path}: {report.kind}{', with nothing to import' * is_empty}")
    for count, what, done in counts:
        if count:
            say(f"  {how_many(count, what)} {done}")
    for kinds, what in ((report.left_out, "left out of conversations"), (report.redacted, "secrets removed")):
        if kinds:
            say(f"  {what}: " + ", ".join(f"{kind} ({count:,})" for kind, count in kinds.items()))
    for each in report.skipped[:_MOST_SHOWN]:
        say(f"  skipped {each.what}: {each.why}")
    if len(report.skipped) > _MOST_SHOWN:
        say(f"  and {len(report.skipped) - _MOST_SHOWN:,} more: list all with --json")


async def export_memory(run: VerbRun) -> None:
    """Write the memories of every namespace, or of the named one, to a file, or print them."""
    args = run.args
    path = None if args.output in {None, Path("-")} else expand_home(args.output)
    form = args.format or (_FORMS.get(path.suffix.lower(), "jsonl") if path else "jsonl")
    memories = run.memories if args.namespace else run.memories.within(across=True)
    wanted = await given_of(run, declared_parameters(MemoryFilter))
    remembered = await exports.export_memories(memories, SENSITIVITIES, **wanted)
    counts = {"observations": len(remembered.observations), "facts": len(remembered.facts)}
    if rest := await memories.every(sensitivities=SENSITIVITIES, statuses=STATUSES[1:], **wanted):
        warn(f"{how_many(len(rest), 'memory')} left out as hidden, replaced or retired: `chatbot backup` has them too")
    if not path and not args.dry_run:
        _say_content(partial(exports.render_memories, remembered), form, args)
        return
    if path and not args.dry_run:
        with new_file(path, force=args.force) as file:
            file.write(exports.render_memories(remembered, form).encode())
    what = f"{how_many(counts['observations'], 'memory')} and {how_many(counts['facts'], 'fact')}"
    done = f"would be exported: {what}" if args.dry_run else f"wrote {path}: {what}"
    say_result(args, counts | {"format": form, "file": str(path or ""), "dry_run": args.dry_run}, done)

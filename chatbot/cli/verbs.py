"""Verbs of `chatbot memory`, `sessions` and `projects`, and the selection of sessions. Imports nothing heavy."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, cast

from msgspec.structs import replace

from chatbot import operations
from chatbot.cli.bind import Verbs, add_operations, add_parameters
from chatbot.cli.grammar import count, flag, option
from chatbot.operation import declared_parameters
from chatbot.stores.errors import InvalidValue

if TYPE_CHECKING:
    from chatbot.memory import MemorySystem, SessionFilter, SessionRecord

EXPORTS = ("markdown", "jsonl")


def add_sessions(sessions: argparse.ArgumentParser, only: str | None = None) -> None:
    """Add the verbs of `chatbot sessions`."""
    sessions.set_defaults(namespace=None, all_namespaces=False, sensitivities=[])
    verbs = Verbs(sessions, "sessions", dest="action", required=True, only=only)
    add_operations(verbs)
    _add_session_files(verbs)
    _add_erasing(verbs)


def add_projects(projects: argparse.ArgumentParser, only: str | None = None) -> None:
    """Add the verbs of `chatbot projects`."""
    projects.set_defaults(namespace=None, all_namespaces=False, sensitivities=[])
    verbs = Verbs(projects, "projects", dest="action", required=True, only=only)
    parsers = add_operations(verbs)
    _add_bulk(parsers["erase_project"])


def add_memory(memory: argparse.ArgumentParser, only: str | None = None) -> None:
    """Add the verbs of `chatbot memory`."""
    memory.set_defaults(namespace=None, all_namespaces=False)
    verbs = Verbs(memory, "memory", dest="action", required=True, only=only)
    parsers = add_operations(verbs)
    text = "read the narrative from standard input"
    parsers["remember"].add_argument("stdin", nargs="?", choices=["-"], metavar="-", help=text)
    flag(parsers["list_tasks"], "--all", "also show completed and cancelled tasks")
    _add_bulk(parsers["forget_memory"])
    for name in ("purge_memories", "retract_fact"):
        flag(parsers[name], "--yes", "-y", "do not ask for confirmation")
    _add_extract(verbs)
    _add_memory_files(verbs)
    verbs.add("stats", "show counts of memories, and their size", "stats")
    reindex = verbs.add("reindex", "rebuild the search index", "reindex")
    flag(reindex, "--embed", "also embed memories that have no vector yet")
    flag(reindex, "--all", "also embed all memories again")


def _add_extract(verbs: Verbs) -> None:
    examples = ["extract notes.txt", "pdftotext report.pdf - | chatbot memory extract - --add"]
    extract = verbs.add("extract", "extract facts from a text with a model (--add keeps them)", *examples)
    extract.add_argument("file", metavar="FILE", help="text file (-: standard input)")
    keeping = extract.add_mutually_exclusive_group()
    flag(keeping, "--dry-run", "show the facts and keep none (default)")
    flag(keeping, "--add", "add them to memory, by the rules of [extraction]")
    option(extract, "-m", "--model", "NAME", "model to use (default: from [extraction])", default=argparse.SUPPRESS)


def _add_memory_files(verbs: Verbs) -> None:
    examples = ["import CLAUDE.md --dry-run", "import ~/notes --sensitivity private", "import memories.jsonl"]
    _add_import(verbs.add("import", "import notes, a bundle, or a ChatGPT or Claude export", *examples))
    examples = ["export -o memories.jsonl", "export --type decision -o decisions.md"]
    export = verbs.add("export", "export memories as JSON lines (for `import`) or Markdown", *examples)
    add_parameters(export, declared_parameters(operations.MemoryFilter), title="filters")
    option(export, "-o", "--output", "PATH", "file (default -: standard output)", type=Path)
    export.add_argument("--format", choices=EXPORTS, help="default: by the file's extension, or jsonl")
    flag(export, "--force", "overwrite an existing file")
    flag(export, "--dry-run", "report the counts, write nothing")


def _add_import(parser: argparse.ArgumentParser) -> None:
    """Add the options of an import, to `chatbot memory import` and to `chatbot sessions import`."""
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a file or a folder")
    flag(parser, "--dry-run", "report what would be imported, write nothing")
    text = "minimum sensitivity of imported memories and sessions"
    parser.add_argument("--sensitivity", choices=("public", "private", "secret"), default="public", help=text)
    text = "do not remember exchanges: they can be searched, and are not recalled"
    flag(parser, "--no-exchanges", text, dest="exchanges", action="store_false")
    flag(parser, "--include-purged", "also import what was deleted permanently here")
    flag(parser, "--trust", "keep visibilities, models and personas that a bundle names")


def _add_bulk(parser: argparse.ArgumentParser) -> None:
    flag(parser, "--dry-run", "list what would change, change nothing")
    flag(parser, "--yes", "-y", "do not ask for confirmation")


def _add_session_files(verbs: Verbs) -> None:
    examples = ["export 0195a1b2 > talk.md", "export 0195a1b2 -o talk.md"]
    examples += ["export --before 30d -o old.jsonl", "export --title tax -o folder"]
    export = verbs.add("export", "export sessions: Markdown, or a bundle of JSON lines", *examples, agent=False)
    _add_selection(export)
    text = "file; a folder for several, or FILE.jsonl (default -: standard output)"
    option(export, "-o", "--output", "PATH", text, type=Path)
    export.add_argument("--format", choices=EXPORTS, help="default: by the file's extension, or markdown")
    flag(export, "--no-memories", "leave out the memories of these sessions", dest="memories", action="store_false")
    flag(export, "--force", "overwrite an existing file")
    flag(export, "--dry-run", "list what would be exported, write nothing")
    summary = "import a bundle, a ChatGPT or Claude export, or notes"
    examples = ["import chatgpt-export.zip --dry-run", "import old.jsonl", "import ~/notes"]
    _add_import(verbs.add("import", summary, *examples))


def _add_erasing(verbs: Verbs) -> None:
    examples = ["archive --before 90d", "archive 0195a1b2 --undo"]
    archive = verbs.add("archive", "archive sessions: hide them from lists", *examples, agent=False)
    _add_selection(archive)
    flag(archive, "--undo", "restore archived sessions")
    _add_bulk(archive)
    examples = ["delete 0195a1b2", "delete 0195a1b2 --keep-memory --yes", "delete --empty --before 7d --yes"]
    delete = verbs.add("delete", "delete sessions permanently, with their memories", *examples, agent=False)
    _add_selection(delete)
    flag(delete, "--empty", "only sessions without messages")
    which = delete.add_mutually_exclusive_group()
    text = "delete their memories too (default on a terminal)"
    flag(which, "--with-memory", text, dest="keep_memory", action="store_false", default=None)
    flag(which, "--keep-memory", "keep their memories", default=None)
    _add_bulk(delete)
    prune = verbs.add("prune", "delete expired sessions", "prune --dry-run")
    flag(prune, "--dry-run", "list what would be deleted, delete nothing")


def _add_selection(parser: argparse.ArgumentParser) -> None:
    text = "id, its beginning, or title; none: all that match the filters"
    parser.add_argument("sessions", nargs="*", metavar="ID|TITLE", help=text)
    add_parameters(parser, declared_parameters(operations.WantedSessions), title="filters")
    option(parser, "--limit", "N", "maximum sessions (default all)", type=count)


def filter_of(args: argparse.Namespace) -> SessionFilter:
    """Return the filter of the options."""
    given = {each.name: getattr(args, each.name) for each in declared_parameters(operations.WantedSessions)}
    wanted = cast("operations.WantedSessions", {name: value for name, value in given.items() if value is not None})
    is_empty = True if getattr(args, "empty", False) else None
    return replace(operations.filter_of(wanted), is_empty=is_empty, limit=args.limit or None)


async def chosen_sessions(memory: MemorySystem, args: argparse.Namespace) -> list[SessionRecord]:
    """Return the named sessions, or else those that match. Raises `InvalidValue` without names and filter."""
    wanted = filter_of(args)
    if args.sessions:
        if not wanted.fits_all or args.limit:
            raise InvalidValue("sessions and a filter are both given: use one")
        found = [await memory.find_session(text) for text in args.sessions]
        return list({record.id: record for record in found}.values())
    if wanted.fits_all and wanted.is_archived is False and not args.limit:
        raise InvalidValue("name sessions, or a filter such as --before 90d or --title TEXT; --all selects every one")
    return await memory.choose_sessions(wanted)

"""Verbs of `chatbot memory`: the operations, and those that only the command line has."""

from __future__ import annotations

import argparse
from pathlib import Path

from chatbot.cli.bind import Verbs, add_filter, add_operations
from chatbot.cli.grammar import flag, option
from chatbot.cli.sessions.grammar import add_bulk, add_import


def add_memory(memory: argparse.ArgumentParser) -> None:
    """Fill in `chatbot memory`."""
    memory.set_defaults(namespace=None, all_namespaces=False)
    verbs = Verbs(memory, "memory", dest="action", required=True)
    parsers = add_operations(verbs, "memory")
    parsers["remember"].add_argument(
        "stdin", nargs="?", choices=["-"], metavar="-", help="read the narrative from standard input"
    )
    flag(parsers["list_tasks"], "--all", "also show completed and cancelled tasks")
    add_bulk(parsers["forget_memory"])
    flag(parsers["purge_memories"], "--yes", "-y", "do not ask for confirmation")
    _add_extract(verbs)
    _add_files(verbs)
    _add_upkeep(verbs)


def _add_extract(verbs: Verbs) -> None:
    extract = verbs.add(
        "extract",
        "extract facts from a text with a model (--add keeps them)",
        "extract notes.txt",
        "pdftotext report.pdf - | chatbot memory extract - --add",
    )
    extract.add_argument("file", metavar="FILE", help="text file (-: standard input)")
    keeping = extract.add_mutually_exclusive_group()
    flag(keeping, "--dry-run", "show the facts and keep none (default)")
    flag(keeping, "--add", "add them to memory, as [extraction] says")
    option(extract, "-m", "--model", "NAME", "the model to use (default: of [extraction])", default=argparse.SUPPRESS)


def _add_files(verbs: Verbs) -> None:
    add_import(
        verbs.add(
            "import",
            "import notes, a bundle, or a ChatGPT or Claude export",
            "import CLAUDE.md --dry-run",
            "import ~/notes --sensitivity private",
            "import memories.jsonl",
            "import facts.json --from memstore",
        )
    )
    export = verbs.add(
        "export",
        "export memories as JSON lines (for `import`) or Markdown",
        "export -o memories.jsonl",
        "export --type decision -o decisions.md",
    )
    add_filter(export)
    option(export, "-o", "--output", "PATH", "file (default -: standard output)", type=Path)
    export.add_argument("--format", choices=("jsonl", "markdown"), help="default: by the file's extension, or jsonl")
    flag(export, "--force", "overwrite an existing file")
    flag(export, "--dry-run", "report how many, write nothing")


def _add_upkeep(verbs: Verbs) -> None:
    verbs.add("stats", "show how much is remembered, and its size", "stats")
    reindex = verbs.add("reindex", "rebuild the search index", "reindex")
    flag(reindex, "--embed", "also embed memories that have no vector yet")
    flag(reindex, "--all", "also embed every memory anew")

"""Verbs of `chatbot memory`: the operations, and those that only the command line has."""

from __future__ import annotations

import argparse
from pathlib import Path

from chatbot.cli.bind import Verbs, add_filter, add_operations
from chatbot.cli.grammar import flag, past
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
    add_bulk(parsers["purge_fact"])
    flag(parsers["purge_memories"], "--yes", "-y", "do not ask for confirmation")
    _add_extract(verbs)
    _add_profile(verbs)
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
    extract.add_argument(
        "-m", "--model", metavar="NAME", default=argparse.SUPPRESS, help="the model to use (default: of [extraction])"
    )


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
    export.add_argument("-o", "--output", type=Path, metavar="PATH", help="file (default -: standard output)")
    export.add_argument("--format", choices=("jsonl", "markdown"), help="default: by the file's extension, or jsonl")
    flag(export, "--force", "overwrite an existing file")
    flag(export, "--dry-run", "report how many, write nothing")


def _add_upkeep(verbs: Verbs) -> None:
    verbs.add("stats", "show how much is remembered, and its size", "stats")
    reindex = verbs.add("reindex", "rebuild the search index", "reindex")
    flag(reindex, "--embed", "also embed memories that have no vector yet")
    flag(reindex, "--all", "also embed every memory anew")


def _add_profile(verbs: Verbs) -> None:
    profile = verbs.add(
        "profile",
        "show what is known about you; change your profile",
        "profile",
        "profile --as-of 2025-05-15",
        'profile set home "Lisbon"',
        "profile history home",
    )
    profile.add_argument("--as-of", type=past, metavar="WHEN", help="show what was true then")
    profile.add_argument("--known-at", type=past, metavar="WHEN", help="show what was known then")
    deeds = Verbs(profile, "memory", dest="deed")
    given = deeds.add(
        "set",
        "give a key a value",
        "profile set home Lisbon --since 2025-12-01",
        "profile set allergy peanuts --also --sensitivity private",
    )
    given.add_argument("key", metavar="KEY", help="any short text: home, job, favourite tea")
    given.add_argument("value", metavar="VALUE", help="the value")
    given.add_argument("--since", type=past, metavar="WHEN", help="time from which it holds (default: now)")
    flag(given, "--also", "keep the other values of the key")
    given.add_argument("--sensitivity", choices=("public", "private"), help="default: as the other values of the key")
    for name, summary in (
        ("pin", "show a key in every prompt"),
        ("unpin", "show a key only where it matters"),
        ("forget", "forget a key and its history"),
        ("history", "show all values that a key had"),
    ):
        parser = deeds.add(name, summary, f"profile {name} home")
        parser.add_argument("key", metavar="KEY", help="the key, or the id of one line")
    for name in ("accept", "reject"):
        judge = deeds.add(name, f"{name} a value that a tool proposed", f"profile {name} 0195a1b2-c3d4")
        judge.add_argument("id", metavar="ID", help="id of the proposal, or its beginning")

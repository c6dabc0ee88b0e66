"""What may stand behind `chatbot sessions`. Imports nothing of ours but the values of options."""

from __future__ import annotations

import argparse
from pathlib import Path

from chatbot.cli.bind import Verbs, add_operations
from chatbot.cli.paging import add_page_after
from chatbot.cli.sessions.filtering import add_filter
from chatbot.cli.values import count

EXPORTS = ("markdown", "jsonl", "html", "bundle")
SOURCES = ("bundle", "chatgpt", "claude", "markdown", "memories", "memstore")


def add_sessions(sessions: argparse.ArgumentParser) -> None:
    """Fill in `chatbot sessions`."""
    grammar = Verbs(sessions, "sessions", dest="action", required=True)
    _add_looking(grammar)
    add_operations(grammar, "sessions")
    _add_moving(grammar)
    _add_erasing(grammar)


def add_import(parser: argparse.ArgumentParser) -> None:
    """The options of an import; `chatbot memory import` has the same."""
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a file or a folder")
    parser.add_argument(
        "--from",
        dest="kind",
        choices=SOURCES,
        metavar="KIND",
        help=f"what it is, where that is not plain: {', '.join(SOURCES)}",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would come in, and write nothing")
    parser.add_argument(
        "--sensitivity", choices=("public", "private", "secret"), default="public", help="at least so delicate"
    )
    parser.add_argument(
        "--no-exchanges",
        dest="exchanges",
        action="store_false",
        help="do not remember what was said in conversations: they are searched, and not recalled",
    )
    parser.add_argument("--include-purged", action="store_true", help="also import what was purged or deleted here")
    parser.add_argument("--trust", action="store_true", help="let a bundle's memories be seen as widely as it says")


def add_bulk(parser: argparse.ArgumentParser) -> None:
    """What everything has that changes many at once."""
    parser.add_argument("--dry-run", action="store_true", help="say which, and change nothing")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")


def _add_looking(grammar: Verbs) -> None:
    listing = grammar.add(
        "list",
        "the sessions used last",
        "list --after 7d --min-messages 4",
        "list --page-after 0195a1b2-c3d4",
        agent=False,
    )
    add_filter(listing, limit=20)
    listing.add_argument("--page-after", metavar="ID", help="go on behind that one: the next page")
    listing.add_argument("--after-id", dest="page_after", help=argparse.SUPPRESS)  # what it was called at first
    show = grammar.add("show", "what was said in a session", "show 0195a1b2", 'show "tax return" --last 4')
    _add_session(show)
    show.add_argument("--last", type=count, default=0, metavar="N", help="only the last N entries")
    search = grammar.add(
        "search",
        "which sessions speak of something, best first, and how to go on with them",
        "search bicycle --after 90d",
        "search tax return --all --json",
        agent=False,
    )
    search.add_argument("text", nargs="+", metavar="TEXT", help="words to look for")
    add_filter(search, limit=10)
    add_page_after(search)
    compare = grammar.add(
        "compare", "what two sessions have in common, and where they part", "compare 0195a1b2 0195b7aa"
    )
    for name in ("left", "right"):
        compare.add_argument(name, metavar="ID|TITLE", help=_WHICH)


def _add_moving(grammar: Verbs) -> None:
    export = grammar.add(
        "export",
        "write sessions to files: Markdown, JSON lines, a page, or a bundle that can be imported",
        "export 0195a1b2 > talk.md",
        "export 0195a1b2 -o talk.html",
        "export --before 30d -o old.zip",
        "export --title tax -o folder --format jsonl",
        agent=False,
    )
    _add_sessions(export)
    export.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="PATH",
        help="a file, or for several a folder; - is standard output, as without",
    )
    export.add_argument("--format", choices=EXPORTS, help="default: by the end of the file's name, or markdown")
    export.add_argument(
        "--no-memories", dest="memories", action="store_false", help="without what is remembered of them"
    )
    export.add_argument("--force", action="store_true", help="write over a file that is there")
    export.add_argument("--dry-run", action="store_true", help="say which, and write nothing")
    importing = grammar.add(
        "import",
        "take in a bundle, an export of ChatGPT or Claude, Markdown memories, or facts of Memstore",
        "import chatgpt-export.zip --dry-run",
        "import old.zip",
        "import ~/notes --from markdown",
    )
    add_import(importing)


def _add_erasing(grammar: Verbs) -> None:
    archive = grammar.add(
        "archive",
        "put sessions away: hidden from lists, still there for who asks",
        "archive --before 90d",
        "archive 0195a1b2 --undo",
        agent=False,
    )
    _add_sessions(archive)
    archive.add_argument("--undo", action="store_true", help="bring them back")
    add_bulk(archive)
    delete = grammar.add(
        "delete",
        "delete sessions permanently, with what is remembered of them",
        "delete 0195a1b2",
        "delete 0195a1b2 --keep-memory --yes",
        "delete --title test --dry-run",
        agent=False,
    )
    _add_sessions(delete)
    _add_memory_too(delete)
    add_bulk(delete)
    prune = grammar.add(
        "prune",
        "erase the sessions whose time to live is over, or those that fit a filter",
        "prune",
        "prune --empty --before 7d --yes",
        "prune --before 2026-01-02 --with-memory --dry-run",
        agent=False,
    )
    add_filter(prune, limit=None)
    prune.add_argument("--empty", action="store_true", help="those in which nothing was said")
    _add_memory_too(prune)
    add_bulk(prune)


def _add_memory_too(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--with-memory",
        dest="keep_memory",
        action="store_false",
        default=None,
        help="delete what is remembered of them too (default on a terminal)",
    )
    which.add_argument("--keep-memory", action="store_true", default=None, help="keep what is remembered of them")


_WHICH = "id, beginning of an id, or title"


def _add_session(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", metavar="ID|TITLE", help=_WHICH)


def _add_sessions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sessions", nargs="*", metavar="ID|TITLE", help=f"{_WHICH}; without any, those that are wanted")
    add_filter(parser, limit=None)

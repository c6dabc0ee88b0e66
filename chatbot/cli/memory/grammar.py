"""What may stand behind `chatbot memory`. Imports nothing of ours but the values of options."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from chatbot.cli.grammar import add_action
from chatbot.cli.paging import add_pages
from chatbot.cli.sessions.grammar import add_bulk, add_import
from chatbot.cli.values import count, future, pair, past, share, whole_days, words

VISIBILITIES = ("private", "shared", "social")
SENSITIVITIES = ("public", "private", "secret")
STATUSES = ("active", "superseded", "expired", "archived", "compressed", "deleted")


def add_memory(memory: argparse.ArgumentParser) -> None:
    """Fill in `chatbot memory`."""
    memory.set_defaults(namespace=None, all_namespaces=False, ask=[])
    actions = memory.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    grammar = _Grammar(actions)
    _add_changing(grammar)
    _add_extracting(grammar)
    _add_looking(grammar)
    _add_people(grammar)
    _add_tasks(grammar)
    _add_facts(grammar)
    add_import(
        grammar.action(
            "import",
            "take in Markdown memories, facts of Memstore, a bundle, or an export of ChatGPT or Claude",
            "memory import CLAUDE.md --dry-run",
            "memory import ~/notes --sensitivity private",
            "memory import memories.jsonl",
            "memory import facts.json --from memstore",
        )
    )
    export = grammar.action(
        "export",
        "write what is remembered to a file: JSON lines that `import` takes back, or notes in Markdown",
        "memory export -o memories.jsonl",
        "memory export --type decision -o decisions.md",
    )
    _add_filter(export)
    export.add_argument("-o", "--output", type=Path, metavar="PATH", help="a file; - is standard output, as without")
    export.add_argument(
        "--format", choices=("jsonl", "markdown"), help="default: by the end of the file's name, or jsonl"
    )
    export.add_argument("--force", action="store_true", help="write over a file that is there")
    export.add_argument("--dry-run", action="store_true", help="say how many, and write nothing")
    stats = grammar.action(
        "stats",
        "how much is remembered, how it came together, how often it helped, and what it takes on the disk",
        "memory stats --days 90",
        "memory stats --html memory.html",
    )
    stats.add_argument("--days", type=whole_days, default=30, metavar="N", help="draw the last N days (default 30)")
    stats.add_argument("--html", type=Path, metavar="FILE", help="write a page that works offline")
    reindex = grammar.action("reindex", "build the search index again from what is kept", "memory reindex")
    reindex.add_argument(
        "--embed", action="store_true", help="make all vectors anew too, with the model of [embedding]"
    )


class _Grammar:
    """A group of actions, each with examples and the options that all of them take."""

    def __init__(self, actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
        self._actions = actions

    def action(self, name: str, summary: str, *examples: str) -> argparse.ArgumentParser:
        parser = add_action(self._actions, name, summary, *examples)
        seen = parser.add_argument_group("seen")
        seen.add_argument("--namespace", metavar="NAME", default=argparse.SUPPRESS, help="of that namespace")
        seen.add_argument("--all-namespaces", action="store_true", default=argparse.SUPPRESS, help="of all of them")
        seen.add_argument(
            "--ask",
            metavar="WORDS",
            type=words,
            action="extend",
            default=argparse.SUPPRESS,
            help="show what is that sensitive too: private,secret",
        )
        return parser


def _add_changing(grammar: _Grammar) -> None:
    add = grammar.action(
        "add",
        "remember something",
        'memory add "The heating is serviced in May" --type note --tag house',
        'git log -1 | chatbot memory add "What changed" -',
    )
    add.add_argument("title", metavar="TITLE", help="what it is, on one line")
    add.add_argument("stdin", nargs="?", choices=["-"], metavar="-", help="read the narrative from standard input")
    add.add_argument("--supersedes", metavar="ID", help="the observation whose place it takes")
    _add_fields(add)
    edit = grammar.action(
        "edit",
        "set fields to other values; without any, open the narrative in $EDITOR",
        "memory edit 0195a1b2-c3d4 --tag house --tag may",
        "memory edit 0195a1b2-c3d4 --expires never --meta colour=null",
    )
    _id(edit)
    edit.add_argument("--title", metavar="TEXT", help="another title")
    _add_fields(edit)
    supersede = grammar.action(
        "supersede", "let one observation take the place of another", "memory supersede 0195a1b2-c3d4 0195b7aa-0001"
    )
    supersede.add_argument("old", metavar="OLD", help="id of the one that no longer holds, or its beginning")
    supersede.add_argument("new", metavar="NEW", help="id of the one that holds now, or its beginning")
    for name, summary in (
        ("confirm", "vouch for observations"),
        ("forget", "take observations out of memory; restore brings them back"),
        ("restore", "make observations active again, whatever became of them"),
    ):
        parser = grammar.action(name, summary, f"memory {name} 0195a1b2-c3d4")
        _ids(parser)
        if name == "forget":
            add_bulk(parser)
    purge = grammar.action(
        "purge",
        "erase observations for good, with what was derived from them",
        "memory purge 0195a1b2-c3d4 --yes",
        "memory purge --expired --dry-run",
    )
    _ids(purge, nargs="*")
    purge.add_argument("--expired", action="store_true", help="all that is past its time")
    add_bulk(purge)


def _add_extracting(grammar: _Grammar) -> None:
    extract = grammar.action(
        "extract",
        "let a model take facts out of a text; nothing is kept unless --add says so",
        "memory extract notes.txt",
        "pdftotext report.pdf - | chatbot memory extract - --add",
    )
    extract.add_argument("file", metavar="FILE", help="the text; - reads standard input")
    keeping = extract.add_mutually_exclusive_group()
    keeping.add_argument("--dry-run", action="store_true", help="show the facts and keep none, which is the default")
    keeping.add_argument("--add", action="store_true", help="remember them, as [extraction] says")
    extract.add_argument(
        "-m", "--model", metavar="NAME", default=argparse.SUPPRESS, help="the model to use (default: of [extraction])"
    )


def _add_looking(grammar: _Grammar) -> None:
    search = grammar.action(
        "search",
        "what is remembered about something, best first",
        'memory search "heating" --person Ada --after 30d',
        "memory search heating --limit 5 --page-after 5",
        "memory search --type decision --json",
    )
    search.add_argument("text", metavar="TEXT", nargs="*", help="words to look for; without any, the newest")
    _add_filter(search)
    add_pages(search, limit=10, zero="10")
    search.add_argument("--max-tokens", type=count, metavar="N", help="end the list once it takes more than that")
    listing = grammar.action(
        "list", "what is remembered, by time", "memory list --order created --limit 5", "memory list --status deleted"
    )
    _add_filter(listing)
    listing.add_argument(
        "--status",
        choices=STATUSES,
        metavar="STATUS",
        action="append",
        default=[],
        help=f"what became of it (default active): {', '.join(STATUSES)}; repeat for any of",
    )
    listing.add_argument(
        "--order", choices=["created", "updated"], default="updated", help="by which time (default updated)"
    )
    listing.add_argument("--limit", type=count, default=20, metavar="N", help="how many (default 20; 0: up to 1,000)")
    listing.add_argument("--page-after", metavar="ID", help="go on behind that one: the next page")
    _ids(grammar.action("get", "observations in full", "memory get 0195a1b2-c3d4", "memory get 0195a1b2-c3d4 --json"))
    timeline = grammar.action(
        "timeline", "what was remembered just before and after", "memory timeline 0195a1b2-c3d4 --before 3 --after 3"
    )
    _id(timeline)
    timeline.add_argument("--before", type=count, default=5, metavar="N", help="how many before (default 5)")
    timeline.add_argument("--after", type=count, default=5, metavar="N", help="how many after (default 5)")
    _id(grammar.action("history", "what it took the place of, and what happened to it", "memory history 0195a1b2-c3d4"))


def _add_people(grammar: _Grammar) -> None:
    people = grammar.action(
        "people",
        "who is mentioned; `alias NAME OTHER` states that two names are one person",
        "memory people ada",
        'memory people alias "Ada Lovelace" "Countess of Lovelace"',
    )
    people.add_argument("words", nargs="*", metavar="QUERY", help="a part of the name, or: alias NAME OTHER")
    add_pages(people, limit=0, zero="all")


def _add_tasks(grammar: _Grammar) -> None:
    tasks = grammar.action(
        "tasks",
        "what is to be done",
        "memory tasks --all",
        'memory tasks add "Book the service" --due 2026-05-01 --surface startup',
        "memory tasks done 0195a1b2-c3d4",
    )
    tasks.add_argument("--all", action="store_true", help="those completed and cancelled too")
    add_pages(tasks, limit=0, zero="all")
    deeds = _Grammar(tasks.add_subparsers(title="actions", metavar="ACTION", dest="deed"))
    add = deeds.action("add", "write a task down", 'memory tasks add "Book the service" --priority high')
    add.add_argument("title", metavar="TITLE", help="what is to be done")
    add.add_argument("--surface", default="", metavar="WHEN", help="startup: bring it up when a session begins")
    add.add_argument("--priority", choices=["high", "normal", "low"], default="normal", help="default normal")
    add.add_argument("--due", default="", metavar="DATE", help="by when, as text; ISO dates sort")
    add.add_argument("--note", default="", metavar="TEXT", help="a word more about it")
    add.add_argument(
        "--scope", choices=["user", "agent", "collaborative"], default="collaborative", help="who is to do it"
    )
    add.add_argument("--project", default="", metavar="NAME", help="what it belongs to")
    for name, summary in (
        ("start", "a task is under way"),
        ("done", "a task is completed"),
        ("cancel", "a task is off"),
    ):
        _id(deeds.action(name, summary, f"memory tasks {name} 0195a1b2-c3d4"))


def _add_facts(grammar: _Grammar) -> None:
    facts = grammar.action(
        "facts",
        "what is stated of whom, as subject, predicate and object",
        "memory facts --subject Ada",
        "memory facts add Ada lives-in London --confidence 0.8",
    )
    for part in ("subject", "predicate", "object"):
        facts.add_argument(f"--{part}", metavar="TEXT", help=f"with that {part}")
    add_pages(facts, limit=100)
    deeds = _Grammar(facts.add_subparsers(title="actions", metavar="ACTION", dest="deed"))
    add = deeds.action("add", "state a fact", "memory facts add Ada lives-in London")
    for part in ("subject", "predicate", "object"):
        add.add_argument(part, metavar=part.upper(), help=f"the {part}")
    add.add_argument("--confidence", type=share, default=1.0, metavar="SHARE", help="from 0 to 1 (default 1)")
    add.add_argument(
        "--source", metavar="ID", help="the observation that it was taken from, or the beginning of its id"
    )
    _id(deeds.action("remove", "take a fact back", "memory facts remove 0195a1b2-c3d4"), what="fact")
    purge = deeds.action("purge", "erase a fact for good", "memory facts purge 0195a1b2-c3d4 --yes")
    _id(purge, what="fact")
    add_bulk(purge)


def _add_fields(parser: argparse.ArgumentParser) -> None:
    fields = parser.add_argument_group("fields")
    fields.add_argument("--narrative", metavar="TEXT", help="the whole of it; - reads standard input")
    fields.add_argument("--subtitle", metavar="TEXT", help="a line below the title")
    for name, summary in (
        ("fact", "one thing that holds"),
        ("tag", "a tag"),
        ("concept", "an idea that it is about"),
        ("person", "someone it mentions"),
        ("file", "a file that it is about"),
    ):
        fields.add_argument(f"--{name}", action="append", metavar="TEXT", help=f"{summary}; may be repeated")
    fields.add_argument("--type", metavar="TYPE", help="discovery (the default), note, decision, preference, event …")
    fields.add_argument("--subject", metavar="TEXT", help="what it is about")
    fields.add_argument("--category", metavar="TEXT", help="where it belongs")
    fields.add_argument("--project", metavar="NAME", help="the project it belongs to")
    fields.add_argument("--importance", type=share, metavar="SHARE", help="from 0 to 1")
    fields.add_argument("--visibility", choices=VISIBILITIES, help="who may see it")
    fields.add_argument("--sensitivity", choices=SENSITIVITIES, help="how delicate it is")
    fields.add_argument(
        "--expires", type=future, default=argparse.SUPPRESS, metavar="WHEN", help="a time, 30d, or never"
    )
    _add_metadata(fields, "a value of its metadata; may be repeated")


def _add_filter(parser: argparse.ArgumentParser) -> None:
    wanted = parser.add_argument_group("wanted")
    for name in ("type", "tag", "concept", "person", "file"):
        wanted.add_argument(
            f"--{name}", action="append", default=[], metavar=name.upper(), help=f"with that {name}; repeat for any of"
        )
    for name in ("subject", "category", "session", "project"):
        wanted.add_argument(f"--{name}", metavar=name.upper(), help=f"of that {name}")
    wanted.add_argument("--after", type=past, metavar="WHEN", help="created then or later: 2026-01-31, or 30d ago")
    wanted.add_argument("--before", type=past, metavar="WHEN", help="created earlier than that")
    wanted.add_argument(
        "--visibility", choices=VISIBILITIES, action="append", default=[], help="where it belongs; repeat for any of"
    )
    _add_metadata(wanted, "with that in its metadata; repeat for all of")


def _add_metadata(group: Any, summary: str) -> None:
    group.add_argument("--meta", type=pair, action="append", default=[], metavar="KEY=VALUE", help=summary)


def _id(parser: argparse.ArgumentParser, *, what: str = "observation") -> None:
    parser.add_argument("id", metavar="ID", help=f"id of the {what}, or its beginning")


def _ids(parser: argparse.ArgumentParser, *, nargs: str = "+") -> None:
    parser.add_argument("ids", nargs=nargs, metavar="ID", help="ids of observations, or their beginnings")

"""Verbs of memories, sessions and projects: their grammar, and their values. Imports nothing heavy, for help."""

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from msgspec.structs import replace

from chatbot import operation as kinds
from chatbot import operations
from chatbot.cli.grammar import add_action, count, flag, future, option, pair, past, share
from chatbot.operation import LEFT_OUT, REQUIRED, Parameter, declared_parameters
from chatbot.operations import OPERATIONS
from chatbot.stores.errors import InvalidValue, did_you_mean

if TYPE_CHECKING:
    from chatbot.cli.memory.command import VerbRun
    from chatbot.memory import MemorySystem, SessionFilter, SessionRecord


class OwnVerb(NamedTuple):
    """A verb that does more than run an operation: its coroutine, for `load_function`, and the reason."""

    runs: str
    why: str


_FILES = "reads or writes files that the user names"
_MANY = "changes many sessions at once: selects them with filters, shows them, and asks first"
_CONFIRMS = "asks first, or takes input that its operation does not"

OF_SESSIONS: Mapping[str, OwnVerb] = {
    "export": OwnVerb("sessions.moving:export", _FILES),
    "import": OwnVerb("sessions.moving:import_", _FILES),
    "archive": OwnVerb("sessions.erasing:archive", _MANY),
    "delete": OwnVerb("sessions.erasing:delete", _MANY),
    "prune": OwnVerb("sessions.erasing:prune", _MANY),
}
"""Verbs of `chatbot sessions` without an operation."""

OF_MEMORY: Mapping[str, OwnVerb] = {
    "import": OwnVerb("sessions.moving:import_", _FILES),
    "export": OwnVerb("sessions.moving:export_memory", _FILES),
    "extract": OwnVerb("memory.changing:extract", "calls a model, and bills it"),
    "stats": OwnVerb("memory.results:stats", "also counts bytes"),
    "reindex": OwnVerb("memory.changing:reindex", "works on the index, which is not part of a memory"),
}
"""Verbs of `chatbot memory` without an operation."""

OF_OPERATIONS: Mapping[str, OwnVerb] = {
    name: OwnVerb(f"memory.changing:{name}", _CONFIRMS)
    for name in (
        *("remember", "change_memory", "confirm_memory", "forget_memory", "restore_memory", "purge_memories"),
        *("retract_fact", "forget_profile"),
    )
} | {"erase_project": OwnVerb("sessions.erasing:erase_project", _CONFIRMS)}
"""Operations whose verbs do more than run them."""


_TYPES: Mapping[Any, tuple[Any, str]] = {
    kinds.Past: (past, "WHEN"),
    kinds.Future: (future, "WHEN"),
    kinds.Share: (share, "SHARE"),
    **dict.fromkeys((kinds.Limit, kinds.Count, kinds.Tokens, kinds.RankCursor), (count, "N")),
    **dict.fromkeys((kinds.Id, kinds.FactId, kinds.IdCursor), (str, "ID")),
    kinds.SessionId: (str, "ID|TITLE"),
    kinds.Metadata: (pair, "KEY=VALUE"),
}
_FEW = 5
"""Maximum words that argparse lists as choices; longer lists are checked later, with a suggestion."""
_ID_FINDERS = {kinds.IdCursor: "id", kinds.FactId: "fact_id", kinds.LineKey: "line_key"}
"""Methods of `VerbRun` that find an id by its beginning, by kind of id."""
_SAMPLES = {
    **dict.fromkeys((kinds.Id, kinds.FactId), "0195a1b2-c3d4"),
    kinds.SessionId: "0195a1b2",
    kinds.LineKey: "home",
}
_ADDED_TO_HELP = {
    kinds.Id: ", its beginning, or words in it",
    kinds.FactId: ", or its beginning",
    kinds.SessionId: ": id, its beginning, or title",
    kinds.Past: ": 2026-01-31, or 30d ago",
    kinds.Future: ": a date, 30d, or never",
}


class Verbs:
    """A level of the grammar that takes verbs, such as `chatbot memory` and `chatbot memory tasks`.

    If `only` is one of its verbs, `add` builds nothing for the others: it returns a parser that is not used.
    """

    def __init__(
        self, parser: argparse.ArgumentParser, group: str, *, dest: str, required: bool = False, only: str | None = None
    ) -> None:
        self._actions = parser.add_subparsers(title="actions", metavar="ACTION", dest=dest, required=required)
        self.group = group
        self._unused = argparse.ArgumentParser(add_help=False, conflict_handler="resolve")
        known = {each.cli.split()[1] for each in OPERATIONS.values() if each.cli.startswith(f"{group} ")}
        known |= {"sessions": OF_SESSIONS, "memory": OF_MEMORY}.get(group, {}).keys()
        self._only = only if only in known else None

    def is_left_out(self, name: str) -> bool:
        """Return whether no parser of the verb is needed."""
        return self._only not in {None, name}

    def add(self, name: str, summary: str, *examples: str, agent: bool = True) -> argparse.ArgumentParser:
        """Add a verb with the options that all of its group take; examples are given without the name of the group."""
        if self.is_left_out(name):
            return self._unused
        shown = (each if "| chatbot " in each else f"{self.group} {each}" for each in examples)
        parser = add_action(self._actions, name, summary, *shown, agent=agent)
        if self.group == "memory":
            access = parser.add_argument_group("access")
            option(access, "--namespace", "NAME", "namespace to use", default=argparse.SUPPRESS)
            flag(access, "--all-namespaces", "use all namespaces", default=argparse.SUPPRESS)
        return parser


def add_operations(verbs: Verbs) -> dict[str, argparse.ArgumentParser]:
    """Add the verbs that operations declare for this group; return the parsers by the names of their operations."""
    parsers: dict[str, argparse.ArgumentParser] = {}
    inner: dict[str, Verbs] = {}
    by_verb: dict[str, argparse.ArgumentParser] = {}
    for operation in OPERATIONS.values():
        group, *path = operation.cli.split() or [""]
        if group != verbs.group:
            continue
        if verbs.is_left_out(path[0]):
            parsers[operation.name] = verbs.add(path[0], "")
            continue
        level = verbs
        if len(path) == 2:  # such as `memory tasks add`: `memory tasks` is declared before it
            if path[0] not in inner:
                inner[path[0]] = Verbs(by_verb[path[0]], group, dest="verb")
            level = inner[path[0]]
        summary = f"{operation.summary[:1].lower()}{operation.summary[1:]}"
        has_agent = "agent" in operation.at("cli")  # then `--agent` is this parameter
        named = (_SAMPLES[each.item] for each in operation.parameters if each.is_positional and each.item in _SAMPLES)
        examples = operation.examples or (" ".join([*path, *named]),)
        parser = level.add(path[-1], summary, *examples, agent=not has_agent)
        parser.set_defaults(operation=operation.name)
        title = "filters" if operation.effect == "reads" else "fields"
        add_parameters(parser, operation.at("cli").values(), title=title)
        if any(each.item == kinds.Id and each.is_positional for each in operation.at("cli").values()):
            flag(parser, "--first", "take the best match of words, without asking")
        parsers[operation.name] = by_verb[path[-1]] = parser
    return parsers


def add_parameters(parser: argparse.ArgumentParser, parameters: Iterable[Parameter], *, title: str) -> None:
    """Add an argument for each parameter, positional or as an option."""
    fields = None
    for each in parameters:
        if each.about.cli is None:
            continue
        if each.default is LEFT_OUT and fields is None:
            fields = parser.add_argument_group(title)
        (_add_argument if each.is_positional else _add_option)(fields or parser, each)


def _add_argument(parser: argparse._ActionsContainer, parameter: Parameter) -> None:
    _, metavar = _type_of(parameter)
    name = str(parameter.at("cli"))
    optional = parameter.default_at("cli") is not REQUIRED
    nargs = "*" if optional else "+"
    several: dict[str, Any] = {"nargs": nargs} if parameter.is_list or parameter.item == kinds.Query else {}
    is_named = metavar == "TEXT" or name in {"old", "new"}  # two ids need names
    parser.add_argument(parameter.name, metavar=name.upper() if is_named else metavar, help=_help(parameter), **several)


def _add_option(parser: argparse._ActionsContainer, parameter: Parameter) -> None:
    name = "--page-after" if parameter.name == "cursor" else f"--{str(parameter.at('cli')).replace('_', '-')}"
    if parameter.item is bool:
        parser.add_argument(name, dest=parameter.name, action="store_true", help=_help(parameter))
        return
    kind, metavar = _type_of(parameter)
    several = parameter.is_list or parameter.item == kinds.Metadata
    shown = name.strip("-").upper() if several and metavar == "TEXT" else metavar  # such as TAG, given once for each
    is_listed = 0 < len(parameter.choices) <= _FEW
    more: dict[str, Any] = {"choices": parameter.choices} if is_listed else {"metavar": shown}
    default = argparse.SUPPRESS if parameter.item == kinds.Future else None
    action = "append" if several else "store"
    parser.add_argument(
        name, dest=parameter.name, type=kind, action=action, default=default, help=_help(parameter), **more
    )


def _type_of(parameter: Parameter) -> tuple[Any, str]:
    return _TYPES.get(parameter.item, (str, "WORD" if parameter.choices else "TEXT"))


def _help(parameter: Parameter) -> str:
    text = parameter.about.words + _ADDED_TO_HELP.get(parameter.item, "")
    default = parameter.default_at("cli")
    if (isinstance(default, str) and default) or (isinstance(default, float | int) and parameter.item is not bool):
        text += f" (default {default:g})" if isinstance(default, float) else f" (default {default})"
    if len(parameter.choices) > _FEW:
        text += f": {parameter.choices[0]} …"
    return text + ("; may be repeated" if parameter.is_list and not parameter.is_positional else "")


async def given_of(run: "VerbRun", parameters: Iterable[Parameter]) -> dict[str, Any]:
    """Return the values on the command line, by the names of the parameters; ids are found by their beginnings.

    Raises `InvalidValue` for an unknown word, `UnknownObservation` or `SessionNotFound`.
    """
    given: dict[str, Any] = {}
    for each in parameters:
        value = getattr(run.args, each.name, None) if each.about.cli is not None else None
        is_never = value is None and each.item == kinds.Future and hasattr(run.args, each.name)  # "never" was typed
        if value in (None, []) and not is_never:
            continue
        given[each.name] = await _value(run, each, value)
    return given


async def _value(run: "VerbRun", parameter: Parameter, value: Any) -> Any:  # noqa: PLR0911 - one for each kind
    item = parameter.item
    if item == kinds.Query:
        return " ".join(value)
    if item == kinds.Metadata:
        return dict(value)
    if item == kinds.SessionId:
        return (await run.system.find_session(value)).id
    if item in _ID_FINDERS:
        return await getattr(run, _ID_FINDERS[item])(value)
    if item == kinds.RankCursor:
        return str(value)
    if item == kinds.Id:
        found = await run.ids(value if parameter.is_list else [value], parameter.noun)
        return list(dict.fromkeys(found)) if parameter.is_list else found[0]
    if len(known := parameter.choices) > _FEW:
        for word in value if parameter.is_list else [value]:
            if word not in known:
                raise InvalidValue(f"unknown --{parameter.at('cli')} {word!r}{did_you_mean(word, known)}")
    return value


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


def filter_of(args: argparse.Namespace) -> "SessionFilter":
    """Return the filter of the options."""
    given = {each.name: getattr(args, each.name) for each in declared_parameters(operations.WantedSessions)}
    wanted = cast("operations.WantedSessions", {name: value for name, value in given.items() if value is not None})
    is_empty = True if getattr(args, "empty", False) else None
    return replace(operations.filter_of(wanted), is_empty=is_empty, limit=args.limit or None)


async def select_sessions(memory: "MemorySystem", args: argparse.Namespace) -> "list[SessionRecord]":
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

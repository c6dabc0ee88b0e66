"""Grammar of the command line: each command and the function that runs it. Imports little, so `--help` is fast."""

import argparse
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from chatbot.cli.grammar import Parser, add_action, add_place, amount, count, days, flag, option, port, usd, whole_days

_EXAMPLES = """\
examples:
  chatbot                             continue the last session
  chatbot setup                       choose a model
  chatbot --new -i grace              start a session with another identity
  chatbot -r "tax return"             resume a session by title or id
  chatbot "what is a monad?"          ask one question
  git diff | chatbot ask "review"     add standard input to the question
  chatbot ask -c "and shorter?"       ask in the last session
  chatbot sessions search bicycle     find a conversation
  chatbot sessions list --json        print JSON for scripts
  chatbot memory search "tax return"  search memories
  chatbot serve                       start the OpenAI-compatible server

exit codes: 0 success, 1 failure, 2 usage, 3 configuration, 4 not found,
            5 model, 6 budget, 7 storage, 130 Ctrl-C, 143 terminated
"""


def build_parser(argv: Sequence[str] | None = None) -> Parser:
    """Build the grammar; `command` is None for the chat itself.

    With `argv`, only the command and the action that it names are built: building them all takes time. If they do not
    exist, all are built, for an error that names the nearest.
    """
    first = index_of_word(argv or ())
    words = None if argv is None else argv[first:]
    is_help = argv is not None and not {"-h", "--help"}.isdisjoint(argv[:first])
    if words and words[0] not in COMMANDS:
        words = None
    parser = Parser(
        prog="chatbot",
        description="A chat bot that remembers, keeps its memory in plain files,\nand runs on any model.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    parser.set_defaults(command=None, **_DEFAULTS)
    add_place(parser)
    _conversation(parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, command in COMMANDS.items():
        is_named = words is None or words[:1] == [name]
        if is_named or is_help:
            added = add_action(commands, name, command.summary, *command.examples)
            added.set_defaults(command=name)
            if isinstance(command.add, str) and is_named:
                load_function(command.add)(added, _action_in(words))
            elif callable(command.add):
                command.add(added)
    return parser


def index_of_word(argv: Sequence[str]) -> int:
    """Return the index of the first word that is neither an option nor its value; the length if there is none."""
    words = (at for at, each in enumerate(argv) if not (each.startswith("-") or (at and argv[at - 1] in _WITH_VALUE)))
    return next(words, len(argv))


def _action_in(words: Sequence[str] | None) -> str | None:
    """Return the action after the command; None if there is none, or an unknown option before it may take a value."""
    rest = (words or ())[1:]
    first = index_of_word(rest)
    is_known = all(each in _WITH_VALUE or not each.startswith("-") for each in rest[:first])
    return rest[first] if is_known and first < len(rest) else None


_DEFAULTS = {
    **dict.fromkeys(("config", "identity", "model", "persona", "project", "budget_usd", "resume", "fork")),
    **dict.fromkeys(("json", "ephemeral", "continue_last", "new"), False),
    "agent": "chat",
    "stream": True,
}
_WITH_VALUE = frozenset(
    {"--config", "-i", "--identity", "--agent", "-m", "--model", "-s", "--system", "--budget-usd", "-r", "--resume"}
    | {"--fork", "--project"}
)
"""Options before the command whose value is the next word."""
_RIGHTS = "read,chat,write"
_CLEARANCES = ("full", "inner", "familiar", "public")
_USERS = ("apart", "shared", "required")
_INHERITED = argparse.SUPPRESS
"""Default of an option that is also accepted before the command."""


def _conversation(parser: argparse.ArgumentParser) -> None:
    talk = parser.add_argument_group("conversation")
    _model(talk)
    option(talk, "-s", "--system", "TEXT", "replace the persona with TEXT", dest="persona", default=_INHERITED)
    flag(talk, "--ephemeral", "keep nothing of this run except its cost", default=_INHERITED)
    option(talk, "--budget-usd", "USD", "refuse calls that could exceed this cost", type=usd, default=_INHERITED)
    flag(
        talk, "--no-stream", "print replies only when complete", dest="stream", action="store_false", default=_INHERITED
    )
    group = parser.add_argument_group("session")
    _project(group, "work in this project; - for no project")
    which = group.add_mutually_exclusive_group()
    flag(which, "-c", "--continue", "continue the last session", dest="continue_last", default=_INHERITED)
    option(which, "-r", "--resume", "ID|TITLE", "resume a session", nargs="?", const="", default=_INHERITED)
    flag(which, "--new", "start a new session", default=_INHERITED)
    option(which, "--fork", "ID|TITLE", "start from a copy of a session", default=_INHERITED)


def _model(parser: argparse._ActionsContainer, words: str = "model to use") -> None:
    option(parser, "-m", "--model", "NAME", words, default=_INHERITED)


def _project(parser: argparse._ActionsContainer, words: str) -> None:
    option(parser, "--project", "NAME", words, default=_INHERITED)


def _namespace(parser: argparse.ArgumentParser, words: str = "namespace to use, such as user:alice") -> None:
    option(parser, "--namespace", "NAME", words, default="")


def _ask(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", nargs="*", help="question; - or a pipe reads standard input")
    option(parser, "-a", "--attach", "FILE", "attach a picture or document; repeatable", action="append", default=[])
    _conversation(parser)


def _why(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("turn", nargs="?", help="turn number, or start of its id (default: the last turn)")
    option(parser, "--session", "ID|TITLE", "session of the turn (default: the last used)")


def _prompt(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", nargs="+", help="message")
    flag(parser, "--dry-run", "show the prompt; the chat model is not called")
    _conversation(parser)


def _maintain(parser: argparse.ArgumentParser) -> None:
    flag(parser, "--dry-run", "show the changes, make none")
    older = "also summarize sessions older than DAYS (default 30)"
    option(parser, "--summarize-old", "DAYS", older, type=days, nargs="?", const=30.0)


def _actions(parser: argparse.ArgumentParser, *, usual: str = "") -> Any:
    """Add the actions of a command; without the name of one, the `usual` one is run."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=not usual)
    parser.set_defaults(action=usual)
    return actions


def _models(parser: argparse.ArgumentParser) -> None:
    actions = _actions(parser, usual="list")
    parser.set_defaults(text="", find=False, all=False, at=[])
    summary = "list chat models: price, window, tools, images"
    listing = add_action(actions, "list", summary, "models list --find", "models list gpt-5 --all")
    listing.add_argument("text", nargs="?", default="", help="part of the name")
    flag(listing, "--find", "also ask model servers on this machine")
    flag(listing, "--all", "also show models without a key")
    _other_server(listing)
    add_action(actions, "weights", "list weights of local models, and what is installed", "models weights --json")
    get = add_action(actions, "get", "download weights, checked by SHA-256", "models get minilm multilingual")
    get.add_argument("names", nargs="+", metavar="NAME", choices=["minilm", "multilingual", "smollm2"], help="weights")


def _other_server(parser: argparse.ArgumentParser) -> None:
    option(parser, "--at", "URL", "also ask the server at this loopback address", action="append", default=[])


def _setup(parser: argparse.ArgumentParser) -> None:
    flag(parser, "--yes", "-y", "look for keys and local servers without asking")
    _model(parser, "choose this model")
    _other_server(parser)


def _keys(parser: argparse.ArgumentParser) -> None:
    actions = _actions(parser, usual="list")
    store = add_action(actions, "set", "store a key, typed unseen or from standard input", "keys set openai")
    add_action(actions, "list", "list providers with a key, and where it is", "keys list --json")
    remove = add_action(actions, "remove", "remove a stored key", "keys remove openai")
    for each in (store, remove):
        each.add_argument("provider", metavar="PROVIDER", help="provider, such as openai")


def _personas(parser: argparse.ArgumentParser) -> None:
    actions = _actions(parser, usual="list")
    add_action(actions, "list", "list personas: shipped ones, and files of your own", "personas list --json")
    show = add_action(actions, "show", "print the text of a persona", "personas show tutor")
    use = add_action(actions, "use", "give a persona to the identity", "personas use tutor -i ada")
    for each in (show, use):
        each.add_argument("name", metavar="NAME", help="persona")


def _tools(parser: argparse.ArgumentParser) -> None:
    actions = _actions(parser, usual="list")
    _model(add_action(actions, "list", "list the tools offered to the agent's model", "tools list --json"))


def _mcp(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clearance", choices=_CLEARANCES, help="clearance of clients, at most the identity's")
    flag(parser, "--http", "serve streamable HTTP instead of standard input and output")
    _add_address(parser, 8808)
    _namespace(parser)
    _project(parser, "restrict clients to this project; - for none")


def _serve(parser: argparse.ArgumentParser) -> None:
    _add_address(parser, 8000)
    _model(parser)
    flag(parser, "--ephemeral", "keep nothing of this run except its cost", default=_INHERITED)
    _namespace(parser)


def _add_address(parser: argparse.ArgumentParser, default: int) -> None:
    option(parser, "--host", "ADDRESS", "address to listen on (default 127.0.0.1)")
    option(parser, "--port", "N", f"port (default {default}; 0: any free port)", type=port)


def _users(parser: argparse.ArgumentParser) -> None:
    actions = _actions(parser, usual="list")
    add_action(actions, "list", "list users and what is stored for each", "users list --json")
    examples = ("users limit alice", "users limit alice --day-usd 0.50", "users limit alice --default")
    limit = add_action(actions, "limit", "show or change the daily limits of a user", *examples)
    export = add_action(actions, "export", "export the data of a user as JSON", "users export alice -o alice.json")
    erase = add_action(actions, "erase", "delete a user's memories and sessions permanently", "users erase alice --yes")
    for each in (limit, export, erase):
        each.add_argument("user", nargs="?", help="user name, as in requests")
        _namespace(each, "namespace of the user; without a user, all of it")
    _quota(limit, "--day", "the user")
    flag(limit, "--default", "use the limit of the token again")
    option(export, "-o", "--output", "FILE", "output file (default: standard output)", type=Path)
    flag(export, "--force", "overwrite an existing file")
    flag(erase, "--dry-run", "show what would be deleted, delete nothing")
    flag(erase, "--yes", "-y", "do not ask for confirmation")


def _quota(parser: argparse.ArgumentParser, name: str, whose: str) -> None:
    parser.add_argument(f"{name}-usd", type=amount, metavar="N", help=f"daily limit in US dollars for {whose}; 0: none")
    parser.add_argument(f"{name}-tokens", type=count, metavar="N", help=f"daily limit in tokens for {whose}; 0: none")


def _token(parser: argparse.ArgumentParser) -> None:
    actions = _actions(parser, usual="list")
    examples = (
        "token add phone --for ada --clearance familiar --rate 30",
        "token add shop --for ada --clearance full --namespace shop",
        "token add prometheus --metrics",
    )
    add = add_action(actions, "add", "add a token, shown only once", *examples)
    add.add_argument("label", help="label, such as its owner or purpose")
    option(add, "--for", "NAME", "identity that the token opens; repeat for more", dest="identities", action="append")
    opens = add.add_mutually_exclusive_group(required=True)
    opens.add_argument("--clearance", choices=_CLEARANCES, help="clearance of its holder")
    flag(opens, "--metrics", "open only /metrics")
    option(add, "--rights", "RIGHT,…", f"{_RIGHTS} (default), curate, erase, declassify, all", default=_RIGHTS)
    _namespace(add, "restrict the token to this namespace")
    option(add, "--project", "NAME", "restrict the token to this project; - for no project")
    add.add_argument("--users", choices=_USERS, default="apart", help="memory of users, default: apart")
    add.add_argument("--memory", choices=["on", "off"], default="off", help="remember without a session, default: off")
    option(add, "--rate", "N", "requests per minute (default: from [server])", type=count, default=0)
    limits = ("token limit phone --day-usd 0.50", "token limit shop --user-day-tokens 100000")
    limit = add_action(actions, "limit", "change the daily limits of a token", *limits)
    add_action(actions, "list", "list tokens without their secrets", "token list --json")
    renew = add_action(actions, "renew", "replace the text of a token that leaked or was lost", "token renew phone")
    revoke = add_action(actions, "revoke", "revoke a token at once", "token revoke phone")
    for each in (limit, renew, revoke):
        each.add_argument("token", metavar="ID|LABEL", help="token id or label")
    for each in (add, limit):
        _quota(each, "--day", "the token")
        _quota(each, "--user-day", "each user named in its requests")


def _storage(parser: argparse.ArgumentParser) -> None:
    actions = _actions(parser)
    create = add_action(actions, "create", "create the tables of [storage] url", "storage create --role server")
    option(create, "--url", "URL", "database, as its owner, or env:VARIABLE (default: [storage] url)")
    option(create, "--role", "NAME", "role of the servers, which gets access to the tables", default="")
    to_database = "storage copy identities/ada/memory env:DATABASE_URL"
    to_files = "storage copy 'postgresql://db.example.org/chatbot#ada' backup/ada"
    copy = add_action(actions, "copy", "copy an identity between files and a database", to_database, to_files)
    copy.add_argument("source", metavar="FROM", help="memory folder, or URL with #identity, or env:VARIABLE")
    copy.add_argument("target", metavar="TO", help="the same; existing data is compared, never deleted")


def _usage(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("session", nargs="?", help="session id, start of an id, or title (default: all)")
    option(parser, "--days", "N", "show the last N days (default 30)", type=whole_days, default=30)


def _config(parser: argparse.ArgumentParser) -> None:
    actions = _actions(parser, usual="show")
    add_action(actions, "show", "show the current settings; keys are masked", "config show --json")
    add_action(actions, "path", "show the files and folders in use", "config path")
    examples = (
        "config set model.name openai/gpt-5-mini",
        "config set terminal.vi true",
        "config set agents.chat.tools '[\"memory\"]'",
    )
    change = add_action(actions, "set", "set one value in the configuration file", *examples)
    default = add_action(actions, "unset", "remove a value to use its default", "config unset model.name")
    for each in (change, default):
        each.add_argument("key", metavar="KEY", help="setting, such as model.name")
    change.add_argument("value", metavar="VALUE", help="TOML value, or text")
    add_action(actions, "edit", "edit the file in $EDITOR; only a valid one is written", "config edit")
    summary = "trust ./config.toml (or with -i an identity.toml) as it is now"
    add_action(actions, "trust", summary, "config trust -i grace")


def _init(parser: argparse.ArgumentParser) -> None:
    flag(parser, "--here", "in this folder (default: your configuration folder)")
    option(parser, "--name", "NAME", "name of the identity (default ada)")
    _model(parser)
    option(parser, "-s", "--persona", "TEXT", "persona of the identity", default=_INHERITED)


def _completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=["bash", "zsh", "fish"], help="shell")


def _doctor(parser: argparse.ArgumentParser) -> None:
    flag(parser, "--verify", "compare stored lines with their checksums")
    flag(parser, "--fix", "repair; damaged files are set aside, never deleted")
    flag(parser, "--network", "also call the model (one token, billed) and the collector")


def _backup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", nargs="?", type=Path, help="file (default: NAME-DATE.chatbot)")
    flag(parser, "--force", "overwrite FILE")


def _restore(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="file of `chatbot backup`")
    option(parser, "--as", "NAME", "restore as another identity, like -i", dest="identity", default=_INHERITED)


def _sync(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("place", metavar="PLACE", nargs="?", help="folder or server address (default: all in [sync])")
    flag(parser, "--dry-run", "show what would be synced")
    flag(parser, "--passphrase", "encrypt a new place, or open an encrypted one")


class Command(NamedTuple):
    """One command: the function that runs it, in `chatbot.cli`, its help, and the function that adds arguments."""

    runs: str
    summary: str
    examples: Sequence[str]
    add: Callable[[argparse.ArgumentParser], None] | str | None = None
    """A name in `chatbot.cli` for a large grammar, which is added only if the command line names the command."""


def load_function(function: str) -> Callable[..., Any]:
    """Return a function of `chatbot.cli` by its module and name; the module is loaded now."""
    module, _, name = function.partition(":")
    found: Callable[..., Any] = getattr(import_module(f"chatbot.cli.{module}"), name)
    return found


COMMANDS = {
    "ask": Command(
        "ask:run",
        "ask one question and print the answer",
        ['ask -c "and shorter?"', "ask --json < question.txt", 'ask -a notes.pdf "what is new in it?"'],
        _ask,
    ),
    "sessions": Command(
        "memory.command:run",
        "list, search, export, import and delete sessions",
        ["sessions list", "sessions search bicycle --after 30d", 'sessions export "tax return" -o tax.md'],
        "bind:add_sessions",
    ),
    "projects": Command(
        "memory.command:run",
        "list, rename, export and erase projects",
        ["projects list", "projects rename house home", "projects erase house --dry-run"],
        "bind:add_projects",
    ),
    "why": Command(
        "why:run",
        "show which memories a turn recalled, and why",
        ["why", 'why 2 --session "tax return"', "why --json"],
        _why,
    ),
    "prompt": Command(
        "why:run_prompt",
        "show the prompt for a message without sending it",
        ['prompt --dry-run "which locker is mine?"', 'prompt --dry-run --new "which locker is mine?"'],
        _prompt,
    ),
    "memory": Command(
        "memory.command:run",
        "search and edit memories",
        ['memory add "The heating is serviced in May"', "memory search heating", "memory stats"],
        "bind:add_memory",
    ),
    "maintain": Command(
        "storage:run_maintain",
        "decay, merge and archive memories now",
        ["maintain --dry-run", "maintain --summarize-old 90"],
        _maintain,
    ),
    "usage": Command(
        "why:run_usage", "show cost by day and by purpose", ["usage --days 90", 'usage "tax return"'], _usage
    ),
    "stores": Command("plugins:list_stores", "list store plug-ins and their settings", ["stores", "stores --json"]),
    "storage": Command(
        "storage:run",
        "create tables of a database; copy an identity",
        ["storage create --role server", "storage copy identities/ada/memory env:DATABASE_URL"],
        _storage,
    ),
    "backup": Command("storage:run_backup", "back up an identity to one file", ["backup ada.chatbot"], _backup),
    "restore": Command(
        "storage:run_restore", "restore an identity from a backup", ["restore ada.chatbot --as ada2"], _restore
    ),
    "sync": Command(
        "storage:run_sync", "sync an identity with other machines", ["sync ~/Sync/ada", "sync --dry-run"], _sync
    ),
    "setup": Command(
        "setup:run",
        "find keys and local model servers, and choose a model",
        ["setup", "setup --yes --json", "setup --model openai/gpt-5-mini"],
        _setup,
    ),
    "models": Command(
        "models:run",
        "list models that can be used; fetch models",
        ["models", "models list --find", "models get minilm multilingual"],
        _models,
    ),
    "keys": Command(
        "models:run_keys",
        "store, list and remove keys of providers",
        ["keys set openai", "keys set anthropic < key.txt", "keys list"],
        _keys,
    ),
    "personas": Command(
        "setup:run_personas",
        "list, show and choose personas",
        ["personas list", "personas use tutor -i ada"],
        _personas,
    ),
    "hooks": Command("plugins:list_hooks", "list hooks in the order in which they run", ["hooks", "hooks --json"]),
    "tools": Command("plugins:list_tools", "list the tools that the model can call", ["tools list"], _tools),
    "mcp": Command(
        "serve:run_mcp",
        "serve memory to other agents over MCP",
        ["mcp", "mcp -i grace --clearance familiar", "mcp --http --port 8808"],
        _mcp,
    ),
    "serve": Command("serve:run", "start the HTTP server", ["serve", "serve -i grace --port 8001"], _serve),
    "token": Command(
        "users:run_token",
        "add, list, limit, renew and revoke tokens of the HTTP server",
        ["token add laptop --for ada --clearance full", "token list"],
        _token,
    ),
    "users": Command(
        "users:run",
        "list, limit, export and erase users of the server",
        ["users list", "users limit alice --day-usd 0.50", "users erase alice --yes"],
        _users,
    ),
    "config": Command(
        "config:run",
        "show, set and edit settings; trust a configuration file",
        ["config", "config set model.name openai/gpt-5-mini", "config edit", "config trust -i grace"],
        _config,
    ),
    "doctor": Command(
        "doctor:run",
        "check the installation and suggest fixes",
        ["doctor", "doctor --fix", "doctor --verify", "doctor --network --json"],
        _doctor,
    ),
    "init": Command(
        "setup:run_init",
        "create a configuration and an identity",
        ["init", "init --here --name ada --model anthropic/claude-sonnet-4-5"],
        _init,
    ),
    "completion": Command(
        "main:run_completion",
        "print a shell completion script",
        ["completion bash > ~/.local/share/bash-completion/completions/chatbot", "completion zsh > ~/.zfunc/_chatbot"],
        _completion,
    ),
}
"""Commands in the order of `--help`."""

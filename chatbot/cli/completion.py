"""`chatbot completion`: a static script for a shell, made from the grammar itself. Using it starts no Python."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from chatbot.cli.arguments import build_parser
from chatbot.cli.exits import Exit
from chatbot.cli.output import say, say_json

_FILES = {"FILE", "PATH"}


@dataclass(slots=True)
class Words:
    """What may stand behind one command: `path` is its words, each list holds pairs of a word and what it means."""

    path: str
    commands: list[tuple[str, str]] = field(default_factory=list)
    options: list[tuple[str, str]] = field(default_factory=list)
    values: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What an option takes: words to choose from; none for a value of one's own."""
    files: set[str] = field(default_factory=set)
    """The options that take a file."""
    choices: tuple[str, ...] = ()
    """What an argument may be."""


async def run(args: argparse.Namespace) -> Exit:
    """Print the script."""
    script = {"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell]([*_walk(build_parser(), "")])
    if args.json:
        say_json({"shell": args.shell, "script": script})
    else:
        say(script)
    return Exit.OK


def actions_of(command: str) -> list[tuple[str, str]]:
    """What may stand behind a command, each with what it does."""
    return next(words.commands for words in _walk(build_parser([command]), "") if words.path == command)


def _walk(parser: argparse.ArgumentParser, path: str) -> Iterator[Words]:
    words = Words(path)
    children: list[tuple[str, argparse.ArgumentParser]] = []
    for action in parser._actions:  # noqa: SLF001 - argparse tells its grammar in no other way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            helps = {each.dest: each.help or "" for each in action._choices_actions}  # noqa: SLF001
            words.commands += [(name, helps.get(name, "")) for name in action.choices]
            children += action.choices.items()
        elif action.option_strings and action.help is not argparse.SUPPRESS:
            words.options += [(option, action.help or "") for option in action.option_strings]
            if action.nargs != 0:
                for option in action.option_strings:
                    words.values[option] = tuple(map(str, action.choices or ()))
            if action.metavar in _FILES:
                words.files.update(action.option_strings)
        elif action.choices and not action.option_strings:
            words.choices += tuple(map(str, action.choices))
    yield words
    for name, child in children:
        yield from _walk(child, f"{path} {name}".strip())


_BASH = """\
# bash completion for chatbot; made by: chatbot completion bash
_chatbot() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" at="" word i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="${{COMP_WORDS[i]}}"
    case "${{at:+$at }}$word" in
{paths}
    esac
  done
  case "$at:$prev" in
{values}
  esac
  case "$at" in
{words}
  esac
}}
complete -o default -F _chatbot chatbot
"""


def _bash(grammar: list[Words]) -> str:
    return _with_cases(_BASH, grammar, _bash_value, lambda words: _bash_choice(_offered(words)))


def _bash_value(choices: Sequence[str], *, is_file: bool) -> str:
    if is_file:
        return 'COMPREPLY=($(compgen -f -- "$cur"))'
    return _bash_choice(choices) if choices else ":"


def _bash_choice(words: Sequence[str]) -> str:
    return f'COMPREPLY=($(compgen -W "{" ".join(words)}" -- "$cur"))'


def _offered(words: Words) -> list[str]:
    return [name for name, _ in (*words.commands, *words.options)] + list(words.choices)


_ZSH = """\
#compdef chatbot
# zsh completion for chatbot; made by: chatbot completion zsh
_chatbot() {{
  local at="" word i
  local -a offered
  for ((i = 2; i < CURRENT; i++)); do
    word="${{words[i]}}"
    case "${{at:+$at }}$word" in
{paths}
    esac
  done
  case "$at:${{words[CURRENT-1]}}" in
{values}
  esac
  case "$at" in
{words}
  esac
  _describe -t commands chatbot offered || _files
}}
if [[ "${{funcstack[1]}}" = _chatbot ]]; then
  _chatbot "$@"
else
  compdef _chatbot chatbot
fi
"""


def _zsh(grammar: list[Words]) -> str:
    return _with_cases(_ZSH, grammar, _zsh_value, lambda words: f"offered=({' '.join(_zsh_pairs(words))})")


def _zsh_value(choices: Sequence[str], *, is_file: bool) -> str:
    if is_file:
        return "_files"
    return f"compadd {' '.join(choices)}" if choices else "_message value"


def _zsh_pairs(words: Words) -> list[str]:
    pairs = [*words.commands, *words.options, *((choice, "") for choice in words.choices)]
    return [_quoted(f"{name}:{_plain(about)}" if about else name) for name, about in pairs]


def _with_cases(template: str, grammar: list[Words], value: Callable[..., str], offer: Callable[[Words], str]) -> str:
    """The script of a shell with `case`: how deep the words go, what an option takes, what is offered there."""
    paths = "|".join(f'"{words.path}"' for words in grammar if words.path)
    values = [
        f'    "{words.path}:{option}") {value(choices, is_file=option in words.files)}; return ;;'
        for words in grammar
        for option, choices in words.values.items()
    ]
    offered = [f'    "{words.path}") {offer(words)} ;;' for words in grammar]
    chosen = f'      {paths}) at="${{at:+$at }}$word" ;;'
    return template.format(paths=chosen, values="\n".join(values), words="\n".join(offered)).rstrip("\n")


def _fish(grammar: list[Words]) -> str:
    paths = " ".join(_quoted(words.path) for words in grammar if words.path)
    lines = [
        "# fish completion for chatbot; made by: chatbot completion fish",
        "function __chatbot_at",
        "  set -l path",
        "  for word in (commandline -opc)[2..-1]",
        "    set -l deeper (string join -- ' ' $path $word)",
        f'    if contains -- "$deeper" {paths}',
        '      set path "$deeper"',
        "    end",
        "  end",
        '  test "$path" = "$argv[1]"',
        "end",
    ]
    return "\n".join([*lines, *(line for words in grammar for line in _fish_lines(words))])


def _fish_lines(words: Words) -> Iterator[str]:
    at = f"complete -c chatbot -n {_quoted(f'__chatbot_at {_quoted(words.path)}')}"
    for name, about in words.commands:
        yield f"{at} -f -a {_quoted(name)} -d {_quoted(_plain(about))}"
    for choice in words.choices:
        yield f"{at} -f -a {_quoted(choice)}"
    for option, about in words.options:
        flag = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
        takes = ""
        if option in words.files:
            takes = " -r -F"
        elif option in words.values:
            choices = words.values[option]
            takes = f" -x -a {_quoted(' '.join(choices))}" if choices else " -x"
        yield f"{at} {flag}{takes} -d {_quoted(_plain(about))}"


def _plain(about: str) -> str:
    """Help without what a shell or argparse would take for something else."""
    return re.sub(r"[`$\\\"'\[\]:]", "", about.replace("%%", "%"))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"

"""`chatbot token`: add, list, revoke."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable

from chatbot.cli.exits import Exit
from chatbot.cli.output import age, say, say_json, say_table, warn
from chatbot.errors import ConfigError
from chatbot.identity import load_identity
from chatbot.server.tokens import Token, Tokens
from chatbot.setup import Options, Setup


async def run(args: argparse.Namespace) -> Exit:
    """Do one of them. Needs no model, and no server."""
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent))
    await _ACTIONS[args.action](setup, Tokens.of(setup.identities), args)
    return Exit.OK


async def _add(setup: Setup, tokens: Tokens, args: argparse.Namespace) -> None:
    if args.metrics and args.identities:
        raise ConfigError("--metrics opens no identity: leave out --for")
    asked = [] if args.metrics else args.identities or [setup.identity.name]
    names = [load_identity(setup.identities, name).name for name in asked]
    text, token = await asyncio.to_thread(
        lambda: tokens.add(
            args.label, names, args.clearance or "public", rate_per_minute=args.rate, metrics=args.metrics
        )
    )
    if args.json:
        say_json(_told(token) | {"token": text})
    else:
        say(text)
        opens = "/metrics" if token.metrics else f"{' '.join(names)}, with the clearance {token.clearance}"
        warn(f"{token.id} is shown this once; it opens {opens}")


async def _list(_: Setup, tokens: Tokens, args: argparse.Namespace) -> None:
    found = await asyncio.to_thread(tokens.all)
    if args.json:
        say_json([_told(token) for token in found])
    elif found:
        say_table(
            ("id", "label", "clearance", "a minute", "made", "opens"),
            [
                [
                    each.id,
                    each.label,
                    each.clearance,
                    str(each.rate_per_minute or "–"),
                    age(each.created_at),
                    " ".join([*each.identities, *(["/metrics"] if each.metrics else [])]),
                ]
                for each in found
            ],
        )
    else:
        say("no tokens yet: only this machine may come in")


async def _revoke(_: Setup, tokens: Tokens, args: argparse.Namespace) -> None:
    token = await asyncio.to_thread(tokens.revoke, args.token)
    if args.json:
        say_json({"revoked": token.id})
    else:
        say(f"revoked {token.id} {token.label}")


def _told(token: Token) -> dict[str, object]:
    """What may be known of a token."""
    return {name: value for name, value in token.as_json().items() if name != "sha256"}


_ACTIONS: dict[str, Callable[[Setup, Tokens, argparse.Namespace], Awaitable[None]]] = {
    "add": _add,
    "list": _list,
    "revoke": _revoke,
}

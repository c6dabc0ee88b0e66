"""`chatbot token`: add, list, revoke."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable

from chatbot.cli.exits import Exit
from chatbot.cli.output import age, say, say_json, say_table, warn
from chatbot.errors import ConfigError
from chatbot.identity import load_identity
from chatbot.runtime import Options, Setup
from chatbot.server.access_tokens import Token, Tokens
from chatbot.stores.access import RIGHTS, Right


async def run(args: argparse.Namespace) -> Exit:
    """Run one action. Needs neither a model nor a running server."""
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent))
    await _ACTIONS[args.action](setup, Tokens.of(setup.server_home), args)
    return Exit.OK


async def _add(setup: Setup, tokens: Tokens, args: argparse.Namespace) -> None:
    if args.metrics and args.identities:
        raise ConfigError("--metrics cannot be combined with --for")
    asked = [] if args.metrics else args.identities or [setup.identity.name]
    names = [load_identity(setup.identities, name, setup.config.nameable_providers).name for name in asked]
    text, token = await asyncio.to_thread(
        lambda: tokens.add(
            args.label,
            names,
            args.clearance or "public",
            rate_per_minute=args.rate,
            metrics=args.metrics,
            rights=_rights(args.rights),
            namespace=args.namespace,
            users=args.users,
            memory=args.memory,
        )
    )
    if args.json:
        say_json(_told(token) | {"token": text})
    else:
        say(text)
        scope = f" in the namespace {token.namespace}" if token.namespace else ""
        rights = ",".join(rights_of(token)) or "none"
        opens = f"{' '.join(names)}{scope}, clearance {token.clearance}, rights {rights}"
        if token.memory == "on":
            opens = f"{opens}; clients of OpenAI are remembered with it, also without a session"
        opens = "/metrics" if token.metrics else opens
        warn(f"{token.id} is shown only once; it opens {opens}")


async def _list(_: Setup, tokens: Tokens, args: argparse.Namespace) -> None:
    found = await asyncio.to_thread(tokens.all)
    if args.json:
        say_json([_told(token) for token in found])
    elif found:
        say_table(
            ("id", "label", "clearance", "rights", "namespace", "users", "memory", "per minute", "created", "opens"),
            [
                [
                    each.id,
                    each.label,
                    each.clearance,
                    "–" if each.metrics else ",".join(rights_of(each)) or "none",
                    each.namespace or "–",
                    each.users,
                    "–" if each.metrics else each.memory,
                    str(each.rate_per_minute or "–"),
                    age(each.created_at),
                    " ".join([*each.identities, *(["/metrics"] if each.metrics else [])]),
                ]
                for each in found
            ],
        )
    else:
        say("No tokens yet: the server accepts only this machine")


async def _revoke(_: Setup, tokens: Tokens, args: argparse.Namespace) -> None:
    token = await asyncio.to_thread(tokens.revoke, args.token)
    if args.json:
        say_json({"revoked": token.id})
    else:
        say(f"revoked {token.id} {token.label}")


def rights_of(token: Token) -> list[Right]:
    """Return the rights of a token in the documented order."""
    return [each for each in RIGHTS if each in token.rights]


def _rights(text: str) -> list[str]:
    """Parse `--rights`: `read,chat`, or `all`."""
    return list(RIGHTS) if text == "all" else [each.strip() for each in text.split(",") if each.strip()]


def _told(token: Token) -> dict[str, object]:
    """Return the fields of a token except its digest."""
    return {name: value for name, value in token.as_json().items() if name != "sha256"}


_ACTIONS: dict[str, Callable[[Setup, Tokens, argparse.Namespace], Awaitable[None]]] = {
    "add": _add,
    "list": _list,
    "revoke": _revoke,
}

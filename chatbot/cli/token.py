"""`chatbot token`: add, list, limit, revoke."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from chatbot.chat.budget import NO_QUOTA, Quota
from chatbot.chat.usage import cost_text
from chatbot.cli.exits import Exit
from chatbot.cli.output import age, say, say_json, say_table, warn
from chatbot.errors import ConfigError
from chatbot.identity import load_identity
from chatbot.memory.record import utc_now
from chatbot.runtime import Options, Setup
from chatbot.server.access_tokens import Token, Tokens
from chatbot.server.accounts import Account, Accounts
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
            quota=changed_quota(NO_QUOTA, args.day_usd, args.day_tokens),
            user_quota=changed_quota(NO_QUOTA, args.user_day_usd, args.user_day_tokens),
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


async def _list(setup: Setup, tokens: Tokens, args: argparse.Namespace) -> None:
    found = await asyncio.to_thread(tokens.all)
    accounts = Accounts.of(setup.server_home)
    spent = {each.id: await accounts.account(accounts.of_token(each.id, each.quota), utc_now()) for each in found}
    if args.json:
        say_json([_told(token) | {"spent_today": spent[token.id].spent.as_json()} for token in found])
    elif found:
        say_table(
            (
                "id",
                "label",
                "clearance",
                "rights",
                "namespace",
                "users",
                "memory",
                "per minute",
                "today",
                "created",
                "opens",
            ),
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
                    "–" if each.metrics else today(spent[each.id]),
                    age(each.created_at),
                    " ".join([*each.identities, *(["/metrics"] if each.metrics else [])]),
                ]
                for each in found
            ],
        )
    else:
        say("No tokens yet: the server accepts only this machine")


async def _limit(setup: Setup, tokens: Tokens, args: argparse.Namespace) -> None:
    def limited(token: Token) -> Token:
        return replace(
            token,
            quota=changed_quota(token.quota, args.day_usd, args.day_tokens),
            user_quota=changed_quota(token.user_quota, args.user_day_usd, args.user_day_tokens),
        )

    token = await asyncio.to_thread(tokens.limit, args.token, limited)
    accounts = Accounts.of(setup.server_home)
    account = await accounts.account(accounts.of_token(token.id, token.quota), utc_now())
    if args.json:
        say_json(_told(token) | {"spent_today": account.spent.as_json()})
    else:
        each = f", each user {_limits(token.user_quota)} a day" if token.user_quota != NO_QUOTA else ""
        say(f"{token.id} {token.label}: {today(account)}{each}")


async def _revoke(_: Setup, tokens: Tokens, args: argparse.Namespace) -> None:
    token = await asyncio.to_thread(tokens.revoke, args.token)
    if args.json:
        say_json({"revoked": token.id})
    else:
        say(f"revoked {token.id} {token.label}")


def rights_of(token: Token) -> list[Right]:
    """Return the rights of a token in the documented order."""
    return [each for each in RIGHTS if each in token.rights]


def changed_quota(quota: Quota, day_usd: float | None, day_tokens: int | None) -> Quota:
    """Return the quota with what was given."""
    return Quota(quota.day_usd if day_usd is None else day_usd, quota.day_tokens if day_tokens is None else day_tokens)


def today(account: Account) -> str:
    """Return what was spent today, and of how much: `$0.12, 3,400 tokens of $0.50`."""
    spent = account.spent
    told = f"{cost_text(spent.cost_usd, is_known=not spent.calls_of_unknown_cost)}, {spent.tokens:,} tokens"
    return told if account.quota == NO_QUOTA else f"{told} of {_limits(account.quota)}"


def _limits(quota: Quota) -> str:
    usd = [cost_text(quota.day_usd)] if quota.day_usd else []
    return " and ".join([*usd, *([f"{quota.day_tokens:,} tokens"] if quota.day_tokens else [])]) or "no limit"


def _rights(text: str) -> list[str]:
    """Parse `--rights`: `read,chat`, or `all`."""
    return list(RIGHTS) if text == "all" else [each.strip() for each in text.split(",") if each.strip()]


def _told(token: Token) -> dict[str, object]:
    """Return the fields of a token except its digest."""
    return {name: value for name, value in token.as_json().items() if name != "sha256"}


_ACTIONS: dict[str, Callable[[Setup, Tokens, argparse.Namespace], Awaitable[None]]] = {
    "add": _add,
    "list": _list,
    "limit": _limit,
    "revoke": _revoke,
}

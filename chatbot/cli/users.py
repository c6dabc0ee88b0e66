"""`chatbot token` and `chatbot users`: access to the server, its limits, and the data of its users."""

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable, Container
from typing import Any

from msgspec import structs

from chatbot.chat.ledger import NO_QUOTA, Quota, usd_text
from chatbot.cli.from_arguments import setup_of
from chatbot.cli.output import Columns, age, say, say_columns, say_json, say_result, waiting, warn
from chatbot.cli.sessions.moving import new_file
from chatbot.errors import ConfigError
from chatbot.identity import list_identities, load_identity
from chatbot.memory import MemorySystem
from chatbot.memory.scope import check_namespace, namespace_digest, user_namespace, user_of, utc_now
from chatbot.memory.users_and_projects import User, erase_user, export_user, users_in
from chatbot.options import Setup
from chatbot.server.callers import Account, Accounts, Grant, Token, Tokens, forget_user
from chatbot.server.earlier_requests import EarlierRequests
from chatbot.stores.access import RIGHTS, Right, project_words
from chatbot.stores.errors import InvalidValue, UnknownObservation
from chatbot.stores.fields import how_many
from chatbot.stores.records import expand_home


async def run_token(args: argparse.Namespace) -> None:
    """Run one action of `chatbot token`. Needs neither a model nor a running server."""
    setup = setup_of(args)
    await _TOKEN_ACTIONS[args.action](setup, Tokens(setup.server_home), args)


async def _add(setup: Setup, tokens: Tokens, args: argparse.Namespace) -> None:
    if args.metrics and args.identities:
        raise ConfigError("--metrics cannot be combined with --for")
    asked = [] if args.metrics else args.identities or [setup.identity.name]
    names = [load_identity(setup.identities, name, setup.config.nameable_providers).name for name in asked]
    rights: Any = filter(None, map(str.strip, args.rights.split(",")))  # `Tokens.add` checks them
    grant = Grant(
        tuple(dict.fromkeys(names)),
        args.clearance or "public",
        rate_per_minute=args.rate,
        metrics=args.metrics,
        rights=frozenset(RIGHTS if args.rights == "all" else rights),
        namespace=args.namespace,
        project=args.project,
        users=args.users,
        memory=args.memory,
        quota=changed_quota(NO_QUOTA, args.day_usd, args.day_tokens),
        user_quota=changed_quota(NO_QUOTA, args.user_day_usd, args.user_day_tokens),
    )
    _show_text(args, *await asyncio.to_thread(tokens.add, args.label, grant))


def _show_text(args: argparse.Namespace, text: str, token: Token) -> None:
    if args.json:
        say_json(_without_digest(token) | {"token": text})
    else:
        say(text)
        warn(f"this token ({token.id}) is shown only once; it opens {_access_text(token)}")


def _access_text(token: Token) -> str:
    if token.metrics:
        return "/metrics"
    namespace = f" in the namespace {token.namespace}" if token.namespace else ""
    project = f" in {project_words(token.project)}" if token.project is not None else ""
    rights = ",".join(rights_of(token)) or "none"
    whose = {"apart": ", in one memory if they name no user", "shared": ", in one memory"}.get(token.users, "")
    memory = f"; calls of OpenAI clients are remembered, also without a session{whose}" if token.memory == "on" else ""
    return f"{' '.join(token.identities)}{namespace}{project}, clearance {token.clearance}, rights {rights}{memory}"


async def _list_tokens(setup: Setup, tokens: Tokens, args: argparse.Namespace) -> None:
    found = await asyncio.to_thread(tokens.all)
    accounts = Accounts(setup.server_home)
    account = {each.id: await accounts.account(accounts.of_token(each.id, each.quota), utc_now()) for each in found}
    if args.json:
        say_json([_without_digest(token) | {"spent_today": account[token.id].spent.as_json()} for token in found])
    elif found:
        columns: Columns[Token] = {
            "id": lambda each: each.id,
            "label": lambda each: each.label,
            "clearance": lambda each: each.clearance,
            "rights": lambda each: "–" if each.metrics else ",".join(rights_of(each)) or "none",
            "namespace": lambda each: each.namespace or "–",
            "users": lambda each: each.users,
            "memory": lambda each: "–" if each.metrics else each.memory,
            "per minute": lambda each: str(each.rate_per_minute or "–"),
            "today": lambda each: "–" if each.metrics else today(account[each.id]),
            "created": lambda each: age(each.created_at),
            "opens": lambda each: " ".join([*each.identities, *(["/metrics"] if each.metrics else [])]),
        }
        say_columns(found, columns)
    else:
        say("No tokens yet: the server accepts only this machine")


async def _limit_token(setup: Setup, tokens: Tokens, args: argparse.Namespace) -> None:
    def limited(token: Token) -> Token:
        return structs.replace(
            token,
            quota=changed_quota(token.quota, args.day_usd, args.day_tokens),
            user_quota=changed_quota(token.user_quota, args.user_day_usd, args.user_day_tokens),
        )

    token = await asyncio.to_thread(tokens.update, args.token, limited)
    accounts = Accounts(setup.server_home)
    account = await accounts.account(accounts.of_token(token.id, token.quota), utc_now())
    each = f", each user {_limits(token.user_quota)} a day" if token.user_quota != NO_QUOTA else ""
    value = _without_digest(token) | {"spent_today": account.spent.as_json()}
    say_result(args, value, f"{token.id} {token.label}: {today(account)}{each}")


async def _renew(_: Setup, tokens: Tokens, args: argparse.Namespace) -> None:
    _show_text(args, *await asyncio.to_thread(tokens.renew, args.token))


async def _revoke(_: Setup, tokens: Tokens, args: argparse.Namespace) -> None:
    token = await asyncio.to_thread(tokens.revoke, args.token)
    say_result(args, {"revoked": token.id}, f"revoked {token.id} {token.label}")


def rights_of(token: Token) -> list[Right]:
    """Return the rights of a token in the documented order."""
    return [each for each in RIGHTS if each in token.rights]


def changed_quota(quota: Quota, day_usd: float | None, day_tokens: int | None) -> Quota:
    """Return the quota with the given limits changed."""
    return Quota(quota.day_usd if day_usd is None else day_usd, quota.day_tokens if day_tokens is None else day_tokens)


def today(account: Account) -> str:
    """Return today's spending and its limit: `$0.12, 3,400 tokens of $0.50`."""
    used = f"{account.spent.cost}, {account.spent.tokens:,} tokens"
    return used if account.quota == NO_QUOTA else f"{used} of {_limits(account.quota)}"


def _limits(quota: Quota) -> str:
    usd = [usd_text(quota.day_usd)] if quota.day_usd else []
    return " and ".join([*usd, *([f"{quota.day_tokens:,} tokens"] if quota.day_tokens else [])]) or "no limit"


def _without_digest(token: Token) -> dict[str, object]:
    return {name: value for name, value in token.as_json().items() if name != "sha256"}


_TOKEN_ACTIONS: dict[str, Callable[[Setup, Tokens, argparse.Namespace], Awaitable[None]]] = {
    "add": _add,
    "list": _list_tokens,
    "limit": _limit_token,
    "renew": _renew,
    "revoke": _revoke,
}


async def run(args: argparse.Namespace) -> None:
    """Run one action of `chatbot users`. Needs neither a model nor a running server."""
    setup = setup_of(args)
    async with setup.open_memory(observations=setup.observations) as memory:
        await _ACTIONS[args.action](setup, memory, args)
    others = len({*list_identities(setup.identities)} - {setup.identity.name})
    if others and args.action in {"export", "erase"}:
        searched = f"only the identity {setup.identity.name} was searched, and {how_many(others, 'other identity')}"
        warn(f"{searched} may have data of this user: repeat this with -i NAME")


async def _list(setup: Setup, memory: MemorySystem, args: argparse.Namespace) -> None:
    found = await users_in(memory)
    quotas = dict(await asyncio.to_thread(Accounts(setup.server_home).quotas))
    limit = {each.namespace: quotas.pop(namespace_digest(each.namespace), NO_QUOTA) for each in found}
    if args.json:
        say_json([structs.asdict(each) | structs.asdict(limit[each.namespace]) for each in found])
    elif found:
        columns: Columns[User] = {
            "user": lambda each: each.user or "–",
            "namespace": lambda each: each.namespace,
            "memories": lambda each: f"{each.memories:,}",
            "sessions": lambda each: f"{each.sessions:,}",
            "limit a day": lambda each: "–" if limit[each.namespace] == NO_QUOTA else _limits(limit[each.namespace]),
            "last used": lambda each: age(each.used_at) if each.used_at else "–",
        }
        say_columns(found, columns)
    else:
        say("No users yet")
    if quotas and not args.json:
        say(f"limits are set for {how_many(len(quotas), 'user')} without data: `chatbot users limit NAME` shows them")


async def _export(_: Setup, memory: MemorySystem, args: argparse.Namespace) -> None:
    with waiting("exporting"):
        namespace = (await _user(memory, args)).namespace
        exported = await export_user(memory.cleared_for(namespace=namespace), attachments=True)
    if args.output is None:
        say_json(exported)
        return
    with new_file(expand_home(args.output), force=args.force) as file:
        file.write(json.dumps(exported, ensure_ascii=False, indent=1).encode() + b"\n")
    memories, sessions = len(exported["memories"]), len(exported["sessions"])
    counted = f"{how_many(memories, 'memory')} and {how_many(sessions, 'session')}"
    value = {"file": str(args.output), "memories": memories, "sessions": sessions}
    say_result(args, value, f"wrote {args.output}: {counted}")


async def _erase(setup: Setup, memory: MemorySystem, args: argparse.Namespace) -> None:
    accounts = Accounts(setup.server_home)
    user = await _user(memory, args, limited=await asyncio.to_thread(accounts.quotas))
    counts = f"{how_many(user.memories, 'memory')} and {how_many(user.sessions, 'session')}"
    what = f"{counts} of {user.user or user.namespace}"
    if args.dry_run:
        say_result(args, {"namespace": user.namespace, "dry_run": True}, f"would be deleted permanently: {what}")
        return
    if not args.yes:
        raise InvalidValue(f"this would delete permanently: {what}: add --yes to confirm")
    with waiting("erasing"):
        erased = await erase_user(memory.cleared_for(namespace=user.namespace))
    requests = await forget_user(user.namespace, accounts, EarlierRequests(setup.server_home))
    done = {"memories": erased.memories, "sessions": list(erased.sessions), "requests": requests}
    say_result(args, {"namespace": user.namespace, "dry_run": False, **done}, f"deleted permanently: {what}")


async def _limit(setup: Setup, _: MemorySystem, args: argparse.Namespace) -> None:
    namespace, accounts = _namespace_of(args), Accounts(setup.server_home)
    if args.default:
        await asyncio.to_thread(accounts.set_quota, namespace, None)
    elif not (args.day_usd is None and args.day_tokens is None):
        before = (await asyncio.to_thread(accounts.of_user, namespace)).quota
        await asyncio.to_thread(accounts.set_quota, namespace, changed_quota(before, args.day_usd, args.day_tokens))
    account = await accounts.account(await asyncio.to_thread(accounts.of_user, namespace), utc_now())
    value = {"namespace": namespace, **structs.asdict(account.quota), "spent": account.spent.as_json()}
    or_else = " (or the limit of their token)" if account.quota == NO_QUOTA else ""
    say_result(args, value, f"{args.user or namespace}: {today(account)}{or_else}")


def _namespace_of(args: argparse.Namespace) -> str:
    """Return the namespace that the arguments name. Raises `InvalidValue` if they name none."""
    if not (args.user or args.namespace):
        raise InvalidValue("name a user, or a namespace with --namespace: see `chatbot users list`")
    outer = check_namespace(args.namespace)
    return user_namespace(args.user, outer) if args.user else outer


async def _user(memory: MemorySystem, args: argparse.Namespace, limited: Container[str] = ()) -> User:
    """Return the named user. Raises `UnknownObservation` if they have no data and their digest is not `limited`."""
    namespace = _namespace_of(args)
    found = {each.namespace: each for each in await users_in(memory)}
    if namespace_digest(namespace) in limited:
        found.setdefault(namespace, User(namespace, user_of(namespace), 0, 0, None))
    others = {each.namespace for each in found.values() if args.user and each.user == args.user} - {namespace}
    outer = [f"with --namespace {each.rpartition('/')[0]}" if "/" in each else "without --namespace" for each in others]
    again = f"repeat this {' and '.join(sorted(outer))}" if outer else ""
    if namespace not in found:
        raise UnknownObservation(f"no data for {args.user or namespace!r:.80}: {again or 'see `chatbot users list`'}")
    if again:
        warn(f"{args.user} has data in other namespaces, too: {again}")
    return found[namespace]


_ACTIONS: dict[str, Callable[[Setup, MemorySystem, argparse.Namespace], Awaitable[None]]] = {
    "list": _list,
    "limit": _limit,
    "export": _export,
    "erase": _erase,
}

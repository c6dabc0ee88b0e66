"""`chatbot users`: list, limit, export and erase users of the server."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict

from chatbot.chat.budget import NO_QUOTA
from chatbot.cli.exits import Exit
from chatbot.cli.output import age, say, say_json, say_table, waiting, warn
from chatbot.cli.sessions.moving import new_file
from chatbot.cli.token import changed_quota, today
from chatbot.errors import ConfigError
from chatbot.memory import MemorySystem
from chatbot.memory.namespaces import check_namespace, user_namespace
from chatbot.memory.record import utc_now
from chatbot.memory.users import erase_user, export_user, users_in
from chatbot.runtime import Options, Setup
from chatbot.server.accounts import Accounts
from chatbot.server.earlier_requests import Requests
from chatbot.stores.errors import InvalidValue, UnknownObservation
from chatbot.stores.fields import how_many


async def run(args: argparse.Namespace) -> Exit:
    """Run one action. Needs neither a model nor a running server."""
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent))
    async with setup.open_memory(observations=_store(setup)) as memory:
        await _ACTIONS[args.action](setup, memory, args)
    return Exit.OK


async def _list(_: Setup, memory: MemorySystem, args: argparse.Namespace) -> None:
    found = await users_in(memory)
    if args.json:
        say_json([asdict(each) | {"used_at": each.used_at and each.used_at.isoformat()} for each in found])
    elif found:
        say_table(
            ("user", "namespace", "memories", "sessions", "last used"),
            [
                [
                    each.user or "–",
                    each.namespace,
                    f"{each.memories:,}",
                    f"{each.sessions:,}",
                    age(each.used_at) if each.used_at else "–",
                ]
                for each in found
            ],
        )
    else:
        say("no users yet")


async def _export(_: Setup, memory: MemorySystem, args: argparse.Namespace) -> None:
    with waiting("exporting"):
        told = await export_user(await _known(memory, args))
    if args.output is None:
        say_json(told)
        return
    with new_file(args.output.expanduser(), force=args.force) as file:
        file.write(json.dumps(told, ensure_ascii=False, indent=1).encode() + b"\n")
    memories, sessions = len(told["memories"]), len(told["sessions"])
    if args.json:
        say_json({"file": str(args.output), "memories": memories, "sessions": sessions})
    else:
        say(f"wrote {args.output}: {how_many(memories, 'memory')} and {how_many(sessions, 'session')}")


async def _erase(setup: Setup, memory: MemorySystem, args: argparse.Namespace) -> None:
    theirs = await _known(memory, args)
    [user] = [each for each in await users_in(memory) if each.namespace == theirs.caller.namespace]
    told = (
        f"{how_many(user.memories, 'memory')} and {how_many(user.sessions, 'session')} of {user.user or user.namespace}"
    )
    if args.dry_run:
        _say(args, {"namespace": user.namespace, "dry_run": True}, f"would be deleted permanently: {told}")
        return
    if not args.yes:
        warn(f"this deletes permanently: {told}")
        raise InvalidValue("nothing was deleted: add --yes to confirm, or --dry-run for a preview")
    with waiting("erasing"):
        erased = await erase_user(theirs)
    await asyncio.to_thread(Accounts.of(setup.server_home).set_quota, theirs.caller.namespace, None)
    requests = await asyncio.to_thread(Requests.of(setup.server_home).forget, theirs.caller.namespace)
    done = {"memories": erased.memories, "sessions": list(erased.sessions), "requests": requests}
    _say(args, {"namespace": user.namespace, "dry_run": False, **done}, f"deleted permanently: {told}")


async def _limit(setup: Setup, _: MemorySystem, args: argparse.Namespace) -> None:
    name, accounts = _named(args), Accounts.of(setup.server_home)
    if args.default:
        await asyncio.to_thread(accounts.set_quota, name, None)
    elif not (args.day_usd is None and args.day_tokens is None):
        before = (await asyncio.to_thread(accounts.of_user, name)).quota
        await asyncio.to_thread(accounts.set_quota, name, changed_quota(before, args.day_usd, args.day_tokens))
    account = await accounts.account(await asyncio.to_thread(accounts.of_user, name), utc_now())
    told = {"namespace": name, **asdict(account.quota), "spent": account.spent.as_json()}
    own = account.quota if account.quota != NO_QUOTA else None
    _say(args, told, f"{args.user or name}: {today(account)}{'' if own else ' (or the limit of their token)'}")


def _named(args: argparse.Namespace) -> str:
    """Return the namespace that is meant. Raises `InvalidValue` for none."""
    if not (args.user or args.namespace):
        raise InvalidValue("name a user, or a namespace with --namespace: see `chatbot users list`")
    outer = check_namespace(args.namespace)
    return user_namespace(args.user, outer) if args.user else outer


async def _known(memory: MemorySystem, args: argparse.Namespace) -> MemorySystem:
    """Return the memory in the given namespace. Raises `UnknownObservation` if it is empty."""
    name = _named(args)
    if name not in {each.namespace for each in await users_in(memory)}:
        raise UnknownObservation(f"no data for {args.user or name!r:.80}: see `chatbot users list`")
    return memory.cleared_for(namespace=name)


def _say(args: argparse.Namespace, value: dict[str, object], text: str) -> None:
    if args.json:
        say_json(value)
    else:
        say(text)


def _store(setup: Setup) -> str | None:
    """Return the agent's observation store; None if it has none."""
    try:
        return setup.observation_store()
    except ConfigError:
        return None


_ACTIONS: dict[str, Callable[[Setup, MemorySystem, argparse.Namespace], Awaitable[None]]] = {
    "list": _list,
    "limit": _limit,
    "export": _export,
    "erase": _erase,
}

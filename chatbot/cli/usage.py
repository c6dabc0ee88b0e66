"""`chatbot usage`: cost by day and by purpose."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from typing import Any

from chatbot.chat.ledger import Bill, Ledger, bill_of, calls_in, cost_text, merged
from chatbot.cli.output import say, say_json, say_table
from chatbot.memory.scope import utc_now
from chatbot.options import Options, Setup
from chatbot.stores.fields import how_many

_HEAD = ("purpose", "calls", "tokens in", "cached", "tokens out", "cost")


async def run(args: argparse.Namespace) -> None:
    """Print the bill of one session, or of the identity."""
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent))
    if args.session is None:
        await _over_time(setup, args)
        return
    async with setup.open_memory() as memory:
        session = await memory.load_session((await memory.find_session(args.session)).id, any_agent=True)
        records = await session.records()
        bill, attached = bill_of(calls_in(records)), _attached(await session.attachments(), records)
    if args.json:
        say_json(bill.as_json() | ({"attachments": attached} if attached else {}))
    elif not bill.calls:
        say("No model calls yet")
    else:
        show_bill(bill)
        if attached:
            files, size, tokens = (how_many(attached[f"{each}s"], each) for each in ("file", "byte", "token"))
            say(f"attachments: {files}, {size} kept, {tokens} of prompts")


def _attached(kept: Mapping[str, int], receipts: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Files that a session keeps, and what they took of its prompts, each turn counted once; empty without any."""
    if not kept:
        return {}
    tokens = sum(receipt.get("tokens", {}).get("attachments", 0) for receipt in receipts)
    return {"files": len(kept), "bytes": sum(kept.values()), "tokens": tokens}


async def _over_time(setup: Setup, args: argparse.Namespace) -> None:
    days = await Ledger(setup.home).by_day(args.days, utc_now())
    bill = merged(days.values())
    if args.json:
        say_json(bill.as_json() | {"days": [{"date": str(day), **each.as_json()} for day, each in days.items()]})
    elif not bill.calls:
        say("No model calls yet")
    else:
        say("\n".join([*_spending(days), ""]))
        show_bill(bill)


def _spending(days: Mapping[date, Bill]) -> list[str]:
    """Return cost and tokens of all days, and of the one with the most."""
    cost = {day: bill.cost_usd for day, bill in days.items()}
    tokens = {day: bill.tokens for day, bill in days.items()}
    return [*_over_days(cost, "cost", cost_text), *_over_days(tokens, "tokens", "{:,}".format)]


def _over_days(days: Mapping[date, float], title: str, written: Callable[[float], str]) -> list[str]:
    """Return the sum of a figure as a line; none where there is none."""
    if not any(days.values()):
        return []
    most = max(days, key=days.__getitem__)
    return [f"{title} in {len(days)} days: {written(sum(days.values()))}, most on {most}: {written(days[most])}"]


def show_bill(bill: Bill) -> None:
    """Print the bill as a table with a line per purpose."""
    purposes = [_row(purpose, part) for purpose, part in sorted(bill.by_purpose.items())]
    say_table(_HEAD, [*purposes, _row("all", bill)])


def _row(name: str, bill: Bill) -> list[str]:
    cost = cost_text(bill.cost_usd, is_known=not bill.calls_of_unknown_cost)
    figures = (bill.calls, bill.input_tokens, bill.cached_tokens, bill.output_tokens)
    return [name, *(f"{figure:,}" for figure in figures), cost]

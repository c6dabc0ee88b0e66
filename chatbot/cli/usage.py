"""`chatbot usage`: what was spent, by purpose."""

from __future__ import annotations

import argparse

from chatbot.chat import Bill
from chatbot.chat.ledger import Ledger
from chatbot.chat.usage import bill_of, calls_in, cost_text
from chatbot.cli.exits import Exit
from chatbot.cli.output import say, say_json, say_table
from chatbot.runtime import Options, Setup


async def run(args: argparse.Namespace) -> Exit:
    """Print the bill of one session, or of the identity."""
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent))
    if args.session is None:
        bill = await Ledger(setup.identity.memory).total()
    else:
        async with setup.open_memory() as memory:
            session = await memory.load_session((await memory.find_session(args.session)).id, any_agent=True)
            bill = bill_of(calls_in(await session.records()))
    if args.json:
        say_json(bill.as_json())
    elif not bill.calls:
        say("nothing was spent yet")
    else:
        show_bill(bill)
    return Exit.OK


def show_bill(bill: Bill) -> None:
    """The bill as a table, with a line for each purpose."""
    rows = [_row(purpose, part) for purpose, part in sorted(bill.by_purpose.items())]
    say_table(("purpose", "calls", "tokens in", "cached", "tokens out", "cost"), [*rows, _row("all", bill)])


def _row(name: str, bill: Bill) -> list[str]:
    cost = cost_text(bill.cost_usd, is_known=not bill.calls_of_unknown_cost)
    figures = (bill.calls, bill.input_tokens, bill.cached_tokens, bill.output_tokens)
    return [name, *(f"{figure:,}" for figure in figures), cost]

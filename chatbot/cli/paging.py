"""Pages of a list: the one option that leads to the next, and the part that is shown. Imports nothing but grammar."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TypeVar

from chatbot.cli.option_values import count

T = TypeVar("T")


def add_pages(parser: argparse.ArgumentParser, *, limit: int, zero: str = "up to 1,000") -> None:
    """`--limit` and `--page-after` of a list in which the places are counted."""
    usual = str(limit) if limit else "all"
    parser.add_argument(
        "--limit", type=count, default=limit, metavar="N", help=f"maximum results (default {usual}; 0: {zero})"
    )
    add_page_after(parser)


def add_page_after(parser: argparse._ActionsContainer) -> None:
    """`--page-after` alone."""
    parser.add_argument("--page-after", type=count, default=0, metavar="N", help="skip the first N")


def reach(args: argparse.Namespace) -> int:
    """Return how many must be found to show the page, and to know whether there is another."""
    from chatbot.stores.query import EVERY

    return args.page_after + args.limit + 1 if args.limit else EVERY


def page_of(items: Sequence[T], args: argparse.Namespace) -> tuple[Sequence[T], str]:
    """Return the requested part of the list, and a hint how to see the next; empty at the end."""
    end = args.page_after + args.limit if args.limit else len(items)
    return items[args.page_after : end], f"more: --page-after {end}" if end < len(items) else ""

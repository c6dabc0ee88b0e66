"""Looking at what is remembered. Nothing here counts as a use: it is not the bot who asks."""

from __future__ import annotations

from dataclasses import replace

from chatbot.cli.memory.desk import Desk
from chatbot.cli.memory.tables import say_history, say_hits, say_in_full, say_observations, say_timeline
from chatbot.cli.output import progress, say, say_json
from chatbot.cli.paging import reach
from chatbot.memory.reading import DEFAULT_LIMIT
from stores.query import MOST_AT_ONCE


async def search(desk: Desk) -> None:
    """The best hits first; just enough of each to decide whether to `get` it."""
    desk.args.limit = desk.args.limit or DEFAULT_LIMIT
    hits = await desk.memories.search(
        " ".join(desk.args.text),
        limit=reach(desk.args),
        max_tokens=desk.args.max_tokens,
        ask=desk.ask,
        count_use=False,
        **await desk.wanted(),
    )
    desk.show_page(hits, say_hits, lambda hit: hit.index(), nothing="nothing is remembered about that")


async def list_(desk: Desk) -> None:
    """A page by time, and how to ask for the next."""
    args = desk.args
    page = await desk.memories.list_observations(
        order=args.order,
        limit=args.limit or MOST_AT_ONCE,
        cursor=await desk.id(args.page_after) if args.page_after else None,
        ask=desk.ask,
        statuses=args.status or ["active"],
        **await desk.wanted(),
    )
    if args.json:
        say_json([row.as_json() for row in page.rows])
        return
    if not page.rows:
        say("nothing is remembered yet" if not args.page_after else "that is all")
        return
    say_observations(page.rows)
    if page.after:
        say(f"more: --page-after {page.after}")


async def get(desk: Desk) -> None:
    """Observations in full, those that are current no more included."""
    memories, ask = desk.memories, desk.ask
    rows = [await desk.row(await memories.resolve(text, ask=ask), ask=ask) for text in desk.args.ids]
    if desk.args.json:
        say_json([row.as_json() for row in rows])
        return
    for number, row in enumerate(rows):
        if number:
            say("\n---\n")
        say_in_full(row)


async def timeline(desk: Desk) -> None:
    """What came just before and after, oldest first."""
    args = desk.args
    anchor = await desk.memories.resolve(args.id, ask=desk.ask)
    rows = await desk.memories.timeline(anchor, before=args.before, after=args.after, ask=desk.ask)
    if args.json:
        say_json([row.as_json() for row in rows])
    else:
        say_timeline(rows, anchor)


async def history(desk: Desk) -> None:
    """The line of succession, oldest first."""
    line = await desk.memories.history(await desk.memories.resolve(desk.args.id, ask=desk.ask), ask=desk.ask)
    if desk.args.json:
        say_json(
            [
                {
                    "observation": version.observation.as_json(),
                    # An event can be about several observations, of which the caller may not know all.
                    "events": [replace(event, ids=(version.observation.id,)).as_json() for event in version.events],
                }
                for version in line
            ]
        )
    else:
        say_history(line)


async def reindex(desk: Desk) -> None:
    """Build the caches again."""
    with progress("indexing") as told:
        number = await desk.memories.reindex(told, embed=desk.args.embed)
    desk.tell({"observations": number}, f"indexed {number:,} observations")

"""`chatbot prompt --dry-run`: show the prompt part by part without sending it."""

from __future__ import annotations

import argparse

from chatbot.chat.prompt import PromptBundle
from chatbot.chat.receipts import memory_line
from chatbot.cli.exits import Exit
from chatbot.cli.options import chosen_session, options_of
from chatbot.cli.output import complain, printable, say, say_json, say_marked
from chatbot.runtime import Runtime
from chatbot.stores.errors import InvalidValue


async def run(args: argparse.Namespace) -> Exit:
    """Print the prompt for a message."""
    if not args.dry_run:
        complain(InvalidValue("add --dry-run: chatbot prompt only shows prompts"), as_json=args.json)
        return Exit.USAGE
    async with Runtime(options_of(args)) as runtime:
        named = args.new or args.resume is not None or args.fork is not None
        session = await chosen_session(runtime, args) if named else await runtime.resume()
        try:
            bundle, receipt = await runtime.chat(session).dry_run(" ".join(args.text))
        finally:
            if session is not None and (args.new or args.fork is not None):
                await runtime.memory.delete_session(session.id)  # it was made for this alone
        if args.json:
            say_json(
                {
                    "messages": [message.as_openai() for message in bundle.messages],
                    "tokens": {**bundle.parts, "reply_reserve": bundle.reply_tokens, "window": bundle.context_window},
                    "parts_left_out": list(bundle.dropped),
                    "memory": receipt.memory,
                }
            )
        else:
            _show(bundle)
            if line := memory_line(receipt.memory):
                say_marked(f"in the prompt: {line}")
    return Exit.OK


def _show(bundle: PromptBundle) -> None:
    for message in bundle.messages:
        said = message.content or ", ".join(f"{call.name}({call.arguments})" for call in message.tool_calls)
        say(f"--- {message.role}")
        say(printable(said))
    say("---")
    parts = " · ".join(f"{name} {count:,}" for name, count in bundle.parts.items())
    say(f"tokens: {parts} · reply {bundle.reply_tokens:,} of a window of {bundle.context_window:,}")
    if bundle.dropped:
        say(f"left out for want of room: {', '.join(bundle.dropped)}")

"""`chatbot memory export`: what is remembered, as a file."""

from __future__ import annotations

import sys
from pathlib import Path

from chatbot.cli.memory.verb_run import VerbRun
from chatbot.cli.output import printable, say
from chatbot.cli.sessions.moving import new_file
from chatbot.transfer import export_memories
from chatbot.transfer.memory_export import render
from chatbot.transfer.session_export import EXPORTED_SENSITIVITIES


async def export(run: VerbRun) -> None:
    """Write it, or print it; of every namespace, unless one is named."""
    args = run.args
    path = None if args.output in {None, Path("-")} else args.output.expanduser()
    form = args.format or ("markdown" if path and path.suffix.lower() in {".md", ".markdown"} else "jsonl")
    memories = run.memories if args.namespace else run.memories.within(across=True)
    remembered = await export_memories(memories, {*EXPORTED_SENSITIVITIES, *run.ask}, **await run.wanted())
    counts = {"observations": len(remembered.observations), "facts": len(remembered.facts)}
    if not path and not args.dry_run:
        text = render(remembered, form)
        say((printable(text) if sys.stdout.isatty() else text).removesuffix("\n"))
        return
    if path and not args.dry_run:
        with new_file(path, force=args.force) as file:
            file.write(render(remembered, form).encode())
    told = f"{counts['observations']:,} memories and {counts['facts']:,} facts"
    done = f"would be exported: {told}" if args.dry_run else f"wrote {path}: {told}"
    run.tell(counts | {"format": form, "file": str(path or ""), "dry_run": args.dry_run}, done)

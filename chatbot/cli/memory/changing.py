"""`chatbot memory`: verbs that change memories, and `extract`."""

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import asdict, replace

from chatbot.chat.calls import Calls
from chatbot.chat.ledger import Ledger, bill_of
from chatbot.cli.bind import given_of
from chatbot.cli.memory.command import VerbRun, name_other_namespace
from chatbot.cli.memory.results import show, show_changed
from chatbot.cli.memory.tables import say_observations
from chatbot.cli.output import confirm, progress, read_piped, say, say_json, say_marked, say_result, say_table, warn
from chatbot.cli.repl.editor import edit_text
from chatbot.errors import SessionNotFound
from chatbot.hooks.extraction.facts import FactList, FactOutcome, Origin, apply, extract_facts, parts_of, plan
from chatbot.hooks.extraction.structured import calls_for_extraction, own_model_settings
from chatbot.memory.erasure import Erasure
from chatbot.models import open_model
from chatbot.operation import LEFT_OUT
from chatbot.operations import OPERATIONS, PurgeResult
from chatbot.stores.access import SENSITIVITIES, Guard, default_visibility
from chatbot.stores.errors import InvalidValue
from chatbot.stores.fields import LONGEST_TEXT, how_many
from chatbot.stores.query import status_now
from chatbot.stores.records import is_id

_NOT_PURGED = "nothing was purged"


async def remember(run: VerbRun) -> None:
    """Remember something; the narrative may come from standard input, also without a title."""
    args = run.args
    is_piped = "-" in {args.title, args.stdin}
    if is_piped and args.narrative is not None:
        raise InvalidValue("--narrative and - are both given: use one")
    _read_narrative(run, is_piped=is_piped)
    args.title = "" if args.title == "-" else args.title
    operation = OPERATIONS["remember"]
    given = await given_of(run, operation.at("cli").values())
    show(run, operation, await operation.run(run.context, "cli", given), given)


async def change_memory(run: VerbRun) -> None:
    """Set the given fields; without any, open the memory's text in an editor."""
    operation = OPERATIONS["change_memory"]
    _read_narrative(run)
    found = await run.id(run.args.memory_id)
    fields = [each for each in operation.at("cli").values() if each.default is LEFT_OUT]
    given = await given_of(run, fields) or await _edit(run, found)
    given["memory_id"] = found
    show(run, operation, await operation.run(run.context, "cli", given), given)


async def confirm_memory(run: VerbRun) -> None:
    """Mark memories as correct."""
    await _change(run, await _fitting_ids(run, "confirm", lambda status: status == "active"))


async def restore_memory(run: VerbRun) -> None:
    """Make memories active again."""
    ids = await _fitting_ids(run, "restore", lambda status: status != "active")
    replaced = {each: (await run.memories.row(each, sensitivities=SENSITIVITIES)).superseded_by for each in ids}
    await _change(run, ids)
    successors = [*filter(None, replaced.values())]
    current = {row.id for row in await run.memories.get(successors, sensitivities=SENSITIVITIES, count_use=False)}
    for old, new in replaced.items():
        if new in current:
            warn(f"both are active: {old}, and {new}, which replaced it; to swap them: memory supersede {new} {old}")


async def forget_memory(run: VerbRun) -> None:
    """Hide memories; several only after confirmation, on a terminal."""
    args = run.args
    ids = await _fitting_ids(run, "forget", lambda status: status != "deleted")
    if len(ids) > 1 and not (args.yes or args.dry_run) and sys.stdin.isatty():
        rows = [await run.memories.row(each, sensitivities=SENSITIVITIES) for each in ids]
        question = "forget these? undo with `restore`;"
        confirm("forgetting", question, "nothing was forgotten", lambda: say_observations(rows))
    await _change(run, ids, dry_run=args.dry_run)


async def purge_memories(run: VerbRun) -> None:
    """Delete memories permanently, after confirmation."""
    args = run.args
    operation = OPERATIONS["purge_memories"]
    session, args.session_id = args.session_id, None  # `given_of` would refuse a deleted session
    given = await given_of(run, operation.at("cli").values())
    given |= {} if session is None else {"session_id": await _session_id(run, session)}
    planned: PurgeResult = await operation.run(run.context, "cli", given | {"dry_run": True})
    erasure = planned.erasure or Erasure()
    if args.dry_run or not planned.ids:
        found = {"purged": planned.ids, "dry_run": args.dry_run}
        say_result(args, found, "would be purged:" if planned.ids else "nothing to purge")
        if not args.json:
            _show_erasure(erasure)
        await _say_what_stays(run)
        return
    if not args.yes:
        confirm("purging", "delete permanently?", _NOT_PURGED, lambda: _show_erasure(erasure))
    gone: PurgeResult = await operation.run(run.context, "cli", given)
    if args.json:
        say_result(run.args, {"purged": gone.ids, "dry_run": False}, "")
        return
    for each in gone.ids:
        say(f"purged {each}" + (", derived from the others" if each in erasure.derived else ""))
    say_marked("transcripts are unchanged: `chatbot sessions delete` deletes sessions with their memory")
    if args.text is None:
        say_marked("memories that these replaced stay: see `chatbot memory list --status superseded`")
    await _say_what_stays(run)
    run.say_typed_lines()


async def _say_what_stays(run: VerbRun) -> None:
    """After a purge of what concerns a name, say where else it can be, with the commands that show it."""
    args = run.args
    if args.json or not (name := args.person or args.text):
        return
    named = shlex.quote(name)
    if args.person:
        say_marked(f"memories that only mention the name: `chatbot memory purge --text {named} --dry-run`")
    say_marked(f"sessions in which it was said: `chatbot sessions search {named} --limit 1000`")
    if not (args.namespace or args.all_namespaces):
        await name_other_namespace(run)


async def retract_fact(run: VerbRun) -> None:
    """Withdraw a fact; permanently only after confirmation."""
    operation = OPERATIONS["retract_fact"]
    given = await given_of(run, operation.at("cli").values())
    is_purge = bool(given.get("purge"))
    if is_purge and not run.args.yes:
        confirm("purging", f"delete the fact {given['fact_id']} permanently?", _NOT_PURGED)
    await operation.run(run.context, "cli", given)
    show_changed(run, "purged" if is_purge else operation.gives, [given["fact_id"]])


async def forget_profile(run: VerbRun) -> None:
    """Forget a key of the profile, and print the command that restores it."""
    given = await given_of(run, OPERATIONS["forget_profile"].at("cli").values())
    ids = await run.memories.profile_forget(given["key"])
    say_result(run.args, {"forgotten": ids}, f"forgotten {given['key']}; undo: memory restore {' '.join(ids)}")


async def reindex(run: VerbRun) -> None:
    """Rebuild the caches."""
    with progress("indexing") as advance:
        done = {"observations": await run.memories.reindex(advance)}
    summary = f"indexed {how_many(done['observations'], 'memory')}"
    if run.args.embed or run.args.all:
        with progress("embedding") as advance:
            done["embedded"] = await run.memories.embed_memories(advance, anew=run.args.all)
        summary += f", embedded {done['embedded']:,}"
    say_result(run.args, done, summary)


def _read_narrative(run: VerbRun, *, is_piped: bool = False) -> None:
    if is_piped or run.args.narrative == "-":
        run.args.narrative = read_piped(LONGEST_TEXT).strip("\n")


async def _edit(run: VerbRun, observation_id: str) -> dict[str, str]:
    """Return a memory's texts after editing in the user's editor: the first line of a note is its title."""
    if not (sys.stdin.isatty() and os.isatty(1)):
        raise InvalidValue("no change given: name a field, such as --title")
    row = await run.memories.row(observation_id, sensitivities=SENSITIVITIES)
    if row.user_text:
        return {"narrative": await edit_text(row.narrative or row.user_text)}
    title, _, narrative = (await edit_text(f"{row.title}\n{row.narrative}".strip())).partition("\n")
    return {"title": title, "narrative": narrative.strip()}


async def _change(run: VerbRun, ids: Sequence[str], **shown: bool) -> None:
    """Run the operation of the command line on these ids, unless it is a `dry_run`, and show what it changed."""
    operation = OPERATIONS[run.args.operation]
    if ids and not shown.get("dry_run"):
        await operation.run(run.context, "cli", {"ids": ids})
    show_changed(run, operation.gives, [ids], **shown)


async def _fitting_ids(run: VerbRun, verb: str, fits: Callable[[str], bool]) -> list[str]:
    """Return the ids on the command line whose status allows `verb`; warn of the others."""
    operation = OPERATIONS[run.args.operation]
    given: dict[str, Any] = await given_of(run, operation.at("cli").values())
    ids = []
    for each in given["ids"]:
        status = status_now(await run.memories.row(each, sensitivities=SENSITIVITIES), datetime.now(UTC))
        if fits(status):
            ids.append(each)
        else:
            warn(f"nothing to {verb}: {each} is {status}")
    return ids


async def _session_id(run: VerbRun, text: str) -> str:
    """Return the session's id; a deleted one must be given in full."""
    try:
        return (await run.system.find_session(text)).id
    except SessionNotFound:
        if is_id(text):
            return text
        raise


def _show_erasure(erasure: Erasure) -> None:
    if erasure.observations:
        say_observations(erasure.observations)
    if erasure.derived:
        went = "goes too because it was" if len(erasure.derived) == 1 else "go too because they were"
        say(f"{len(erasure.derived)} of these {went} derived from the others")
    for fact in erasure.facts:
        say(f"the fact {fact.subject} · {fact.predicate} · {fact.object}")


_LONGEST = 1_000_000
"""Bytes of a text from which facts are extracted."""


async def extract(run: VerbRun) -> None:
    """Show the facts in a text, or remember them; facts found before a failure are shown."""
    text = _read_text(run.args.file)
    config = run.setup.config
    if run.args.model is not None:
        config = replace(config, extraction=replace(config.extraction, model=""))  # `--model` wins
    settings = own_model_settings(config.model, config.extraction) or config.model
    facts: list[dict[str, Any]] = []
    dropped: list[dict[str, str]] = []
    async with open_model(settings, config.providers) as model:
        calls = calls_for_extraction(model, Ledger(run.setup.home), config)
        parts, done = len(list(parts_of(text))), 0
        try:
            with progress("extracting") as advance:
                async for extracted in extract_facts(calls, text):
                    kept = await _remember_facts(run, calls, extracted) if run.args.add else ()
                    outcomes = [each.as_json() for each in kept] or [{} for _ in extracted.facts]
                    facts += [asdict(fact) | more for fact, more in zip(extracted.facts, outcomes, strict=True)]
                    dropped += [{"content": content, "reason": reason} for content, reason in extracted.dropped]
                    done += 1
                    if advance is not None:
                        advance(done, parts)
        finally:
            _show_facts(run, facts, dropped, calls)


async def _remember_facts(run: VerbRun, calls: Calls, extracted: FactList) -> Sequence[FactOutcome]:
    setup = run.setup
    visibility, namespace = default_visibility(setup.identity.clearance), run.args.namespace or ""
    guard = Guard(visibility, sensitivity="public", min_clearance="public", namespace=namespace, project="")
    origin = Origin(setup.agent, guard)
    steps = await plan(extracted.facts, run.memories, calls, origin, setup.config.extraction)
    return await apply(steps, run.memories, origin)


def _show_facts(run: VerbRun, facts: Sequence[dict[str, Any]], dropped: Sequence[dict[str, str]], calls: Calls) -> None:
    bill = bill_of(calls.made)
    if run.args.json:
        cost = {"cost_usd": bill.cost_usd, "calls_of_unknown_cost": bill.calls_of_unknown_cost}
        say_json({"facts": facts, "dropped": dropped, "calls": bill.calls, **cost})
        return
    for each in dropped:
        warn(f"left out ({each['reason']}): {each['content']}")
    if facts:
        say_table(("type", "outcome", "subject", "fact"), map(_row, facts))
    else:
        say("the model found no facts")
    say(f"{how_many(bill.calls, 'model call')} · {bill.cost}")


def _row(fact: dict[str, Any]) -> list[str]:
    outcome = " ".join(filter(None, (fact.get("outcome", "not kept"), fact.get("id"), fact.get("reason"))))
    return [fact["type"], outcome, fact["subject"] or "–", fact["content"]]


def _read_text(name: str) -> str:
    """Return the text of a file, or of standard input. Raises `InvalidValue` if it is not text, or too long."""
    try:
        if name == "-":
            name, data = "standard input", read_piped(_LONGEST).encode()
        else:
            with Path(name).open("rb") as file:
                data = file.read(_LONGEST + 1)
        if len(data) > _LONGEST:
            raise InvalidValue(f"{name} is longer than {_LONGEST:,} bytes: split it")
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise InvalidValue(f"{name} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidValue(f"{name} is not UTF-8 text: convert it first, e.g. with iconv") from error
    if not text.strip():
        raise InvalidValue(f"{name} contains no text")
    return text

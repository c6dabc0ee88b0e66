"""Checks of memories, their index and vectors, and the log of hooks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress

from chatbot.cli.doctor.finding import FIX, Finding
from chatbot.errors import ChatbotError
from chatbot.hooks.failure_log import Failures
from chatbot.memory import MemorySystem
from chatbot.runtime import Setup
from chatbot.stores.access import SENSITIVITIES
from chatbot.stores.backends import open_backend
from chatbot.stores.errors import StoreError, UnsupportedOperation
from chatbot.stores.fields import how_many
from chatbot.stores.plugins import open_store
from chatbot.transfer.storage_copy import Storage, digest_of_storage

_STORE = "observations"
_REINDEX = "chatbot memory reindex"


async def memories(setup: Setup, *, verify: bool = False) -> AsyncIterator[Finding]:
    """Check the memories, the bill, the hooks and the caches."""
    is_ours = any(_STORE in agent.memory for agent in setup.config.agents.values())
    if not open_backend(setup.home).is_there():
        if is_ours:
            yield Finding("memory", "ok", "no memories yet")
        return
    store = open_store(_STORE, setup.home, setup.config.memory.get(_STORE, {}))
    async with store:
        flaws = await store.examine(verify=verify)
        if is_ours and not flaws:
            yield Finding("memory", "ok", "no memories yet")
        for flaw in flaws:
            if flaw.subject != "index" or _STORE in setup.agent_settings.memory:
                yield Finding.of(flaw)
    with suppress(StoreError):  # damage is reported by others
        async with AsyncExitStack() as stack:
            digest = await digest_of_storage(await Storage.opened(setup.home, stack))
        yield Finding("digest", "ok", f"{digest}: the same in a backup, and on machines that are in sync")
    for finding in _hooks(Failures(setup.home)):
        yield finding
    if setup.config.embedding.model and any(flaw.subject == "index" for flaw in flaws):
        async for finding in _vectors(setup):
            yield finding


def _hooks(failures: Failures) -> Iterator[Finding]:
    """Report the last failure of each hook."""
    last = {failure.hook: failure for failure in failures.read()}

    async def acknowledge() -> str:
        await asyncio.to_thread(failures.acknowledge)
        return "the report is deleted"

    if not last:
        yield Finding("hooks", "ok", "none failed")
    else:
        told = "; ".join(f"{each.hook} failed at {each.topic}, {each.at}: {each.message}" for each in last.values())
        what = f"{told}. Fix them or set enabled = false in [hooks], then delete the report"
        yield Finding("hooks", "bad", what, FIX, acknowledge)


async def _vectors(setup: Setup) -> AsyncIterator[Finding]:
    from chatbot.models.embedding import open_embedder

    command = f"{_REINDEX} --embed"
    is_free = setup.config.embedding.model.startswith("local/")

    async def embed() -> str:
        async with _open(setup) as memory:
            return f"created for {how_many(await memory.memories().embed_memories(), 'memory')}"

    try:
        if open_embedder(setup.config.embedding, setup.config.providers) is None:
            return  # the check of models says what would bring one
        async with _open(setup) as memory:
            stats = await memory.memories().vector_stats(ask=SENSITIVITIES)
    except UnsupportedOperation:
        return
    except ChatbotError:
        return  # `models` has reported it
    except StoreError as error:
        yield Finding("vectors", "bad", str(error), command, embed if is_free else None)
        return
    if stats.model and stats.model != setup.config.embedding.model:
        what = f"made by {stats.model}, but {setup.config.embedding.model} is configured"
        yield Finding("vectors", "bad", what, command, embed if is_free else None)
    elif stats.missing:
        yield Finding(
            "vectors", "note", f"{how_many(stats.missing, 'row')} without a vector", command, embed if is_free else None
        )
    else:
        yield Finding("vectors", "ok", f"{stats.embedded:,}, of {stats.model or 'no model yet'}")


def _open(setup: Setup) -> MemorySystem:
    return setup.open_memory(observations=setup.observation_store())

"""Servers of a database are told at once what others wrote, and look by themselves where they cannot be told."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from chatbot.stores.backend import Hint
from chatbot.stores.postgres.database import Database
from tests.patience import PATIENCE_S
from tests.postgres import SERVER, owner_url

pytestmark = pytest.mark.usefixtures("postgres")
NEVER_S = 1_000.0


@asynccontextmanager
async def servers() -> AsyncIterator[tuple[Database, Database]]:
    """Two processes, as far as the database can tell."""
    one, other = Database(os.environ[SERVER]), Database(os.environ[SERVER])
    try:
        yield one, other
    finally:
        one.close()
        other.close()


async def _listening(hint: Hint, database: Database, *, until: bool = True) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while database.hints.is_listening != until:
            await hint.wait(0.01, 0.01)


async def test_a_hint_ends_the_wait_of_another_server_for_that_topic_alone() -> None:
    async with servers() as (one, other):
        await _listening(one.hints.of("ada", ("stops",)), one)
        stops, changes = one.hints.of("ada", ("stops",)), one.hints.of("ada", ("changes", "relay"))
        other.hints.announce("bob", "changes")
        other.hints.announce("ada", "stops")
        async with asyncio.timeout(PATIENCE_S):
            await stops.wait(NEVER_S, NEVER_S)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await changes.wait(NEVER_S, NEVER_S)
        other.hints.announce("ada", "relay")
        async with asyncio.timeout(PATIENCE_S):
            await changes.wait(NEVER_S, NEVER_S)


@pytest.mark.nightly  # it tries again after two seconds
async def test_whoever_may_have_missed_a_hint_looks_and_the_connection_comes_back() -> None:
    async with servers() as (one, other):
        hint = one.hints.of("ada", ("stops",))
        await _listening(hint, one)
        with psycopg.connect(owner_url(), autocommit=True) as owner:
            owner.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'LISTEN chatbot'")
        async with asyncio.timeout(PATIENCE_S):
            await hint.wait(NEVER_S, NEVER_S)  # it broke: look
        await _listening(hint, one)
        other.hints.announce("ada", "stops")
        async with asyncio.timeout(PATIENCE_S):
            await hint.wait(NEVER_S, NEVER_S)

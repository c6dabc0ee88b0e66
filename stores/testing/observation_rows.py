"""Rows of the contract kit for observations, and questions to a store that its tests share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest

from chatbot.stores.access import SENSITIVITIES, View
from chatbot.stores.base import ObservationStore
from chatbot.stores.observation import Observation
from chatbot.stores.row_events import Event

NOW = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)
OWNER = View("full", NOW)
EVERY_SENSITIVITY = frozenset(SENSITIVITIES)
IDS = [f"01900000-0000-7000-8000-{number:012x}" for number in range(40)]

Nearest = Literal["exact", "approximate"]
RECALL = 0.98
"""Number of the ten nearest rows a store of level "approximate" finds on average, at least."""
COSINE_OFF = 0.02
"""How far a cosine may be off there."""


def observation(number: int, **fields: Any) -> Observation:
    """An observation that a caller of full clearance sees; `number` gives its id and, in seconds, its time."""
    at = NOW + timedelta(seconds=number)
    given = {"title": f"title {number}", "sensitivity": "public"} | fields
    return Observation(id=IDS[number], created_at=at, updated_at=at, **given)


def adding(*rows: Observation) -> list[Event]:
    """The events that add rows."""
    return [Event(kind="add", at=row.created_at, row=row) for row in rows]


def keeps_vectors(store: ObservationStore) -> bool:
    """Return whether the store implements the part of the contract that is about vectors."""
    return getattr(type(store), "put_vectors", None) is not ObservationStore.put_vectors


def needs_vectors(store: ObservationStore) -> None:
    """Skip the test for a store that keeps no vectors."""
    if not keeps_vectors(store):
        pytest.skip("this store keeps no vectors")

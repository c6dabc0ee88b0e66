"""Stores: the contracts, the plug-ins that ship, and the kit that tests them. Knows nothing of the app."""

from stores.access import View
from stores.base import KeyValueStore, ObservationStore, Store, TranscriptStore
from stores.errors import (
    AccessDenied,
    BrokenStore,
    ConflictingChange,
    DamagedFile,
    InvalidSettings,
    InvalidValue,
    LaterFormat,
    MissingFolder,
    OtherEmbedder,
    StoreBusy,
    StoreError,
    StoreFailed,
    UnknownObservation,
    UnknownStore,
    UnsafePath,
    UnsupportedOperation,
)
from stores.events import Event, Outcome
from stores.observation import Observation, Triple
from stores.query import FactFilter, Filter
from stores.records import KeyValue, SessionRef, TranscriptEntry

__all__ = [
    "AccessDenied",
    "BrokenStore",
    "ConflictingChange",
    "DamagedFile",
    "Event",
    "FactFilter",
    "Filter",
    "InvalidSettings",
    "InvalidValue",
    "KeyValue",
    "KeyValueStore",
    "LaterFormat",
    "MissingFolder",
    "Observation",
    "ObservationStore",
    "OtherEmbedder",
    "Outcome",
    "SessionRef",
    "Store",
    "StoreBusy",
    "StoreError",
    "StoreFailed",
    "TranscriptEntry",
    "TranscriptStore",
    "Triple",
    "UnknownObservation",
    "UnknownStore",
    "UnsafePath",
    "UnsupportedOperation",
    "View",
]

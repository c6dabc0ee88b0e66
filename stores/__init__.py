"""Stores: the contracts, the plug-ins that ship, and the kit that tests them. Imports nothing of the app."""

if __name__ == "stores":  # a second import would duplicate every class
    raise ModuleNotFoundError("import chatbot.stores: the folder stores/ is a part of chatbot", name=__name__)

from chatbot.stores.access import View
from chatbot.stores.base import KeyValueStore, ObservationStore, Store, TranscriptStore
from chatbot.stores.errors import (
    AccessDenied,
    BrokenStore,
    ChangedMeanwhile,
    ClosedResource,
    ConflictingChange,
    DamagedFile,
    InvalidSettings,
    InvalidValue,
    LaterFormat,
    MissingFolder,
    MissingRight,
    OtherEmbedder,
    ReadOnlyFolder,
    StoreAway,
    StoreBusy,
    StoreError,
    StoreFailed,
    UnknownObservation,
    UnknownOutcome,
    UnknownProject,
    UnknownStore,
    UnsafePath,
    UnsupportedOperation,
)
from chatbot.stores.observation import Observation, Triple
from chatbot.stores.query import FactFilter, Filter
from chatbot.stores.records import KeyValue, SessionRef, TranscriptEntry
from chatbot.stores.row_events import Event, Outcome

__all__ = [
    "AccessDenied",
    "BrokenStore",
    "ChangedMeanwhile",
    "ClosedResource",
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
    "MissingRight",
    "Observation",
    "ObservationStore",
    "OtherEmbedder",
    "Outcome",
    "ReadOnlyFolder",
    "SessionRef",
    "Store",
    "StoreAway",
    "StoreBusy",
    "StoreError",
    "StoreFailed",
    "TranscriptEntry",
    "TranscriptStore",
    "Triple",
    "UnknownObservation",
    "UnknownOutcome",
    "UnknownProject",
    "UnknownStore",
    "UnsafePath",
    "UnsupportedOperation",
    "View",
]

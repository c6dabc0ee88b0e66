"""Stores: the contracts, the plug-ins that ship, and the kit that tests them. Knows nothing of the app."""

from stores.base import KeyValueStore, Store, TranscriptStore
from stores.errors import (
    BrokenStore,
    DamagedFile,
    InvalidSettings,
    InvalidValue,
    LaterFormat,
    MissingFolder,
    StoreBusy,
    StoreError,
    StoreFailed,
    UnknownStore,
    UnsafePath,
    UnsupportedOperation,
)
from stores.records import KeyValue, SessionRef, TranscriptEntry

__all__ = [
    "BrokenStore",
    "DamagedFile",
    "InvalidSettings",
    "InvalidValue",
    "KeyValue",
    "KeyValueStore",
    "LaterFormat",
    "MissingFolder",
    "SessionRef",
    "Store",
    "StoreBusy",
    "StoreError",
    "StoreFailed",
    "TranscriptEntry",
    "TranscriptStore",
    "UnknownStore",
    "UnsafePath",
    "UnsupportedOperation",
]

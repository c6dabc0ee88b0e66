"""Stores: the contracts, the plug-ins that ship, and the kit that tests them. Imports nothing of the app."""

if __name__ == "stores":  # a second import would duplicate every class
    raise ModuleNotFoundError("import chatbot.stores: the folder stores/ is a part of chatbot", name=__name__)

from chatbot.stores.access import View as View
from chatbot.stores.base import KeyValueStore as KeyValueStore
from chatbot.stores.base import ObservationStore as ObservationStore
from chatbot.stores.base import Store as Store
from chatbot.stores.base import TranscriptStore as TranscriptStore
from chatbot.stores.errors import AccessDenied as AccessDenied
from chatbot.stores.errors import BrokenStore as BrokenStore
from chatbot.stores.errors import ChangedMeanwhile as ChangedMeanwhile
from chatbot.stores.errors import ClosedResource as ClosedResource
from chatbot.stores.errors import ConflictingChange as ConflictingChange
from chatbot.stores.errors import DamagedFile as DamagedFile
from chatbot.stores.errors import InvalidSettings as InvalidSettings
from chatbot.stores.errors import InvalidValue as InvalidValue
from chatbot.stores.errors import LaterFormat as LaterFormat
from chatbot.stores.errors import MissingFolder as MissingFolder
from chatbot.stores.errors import MissingRight as MissingRight
from chatbot.stores.errors import OtherEmbedder as OtherEmbedder
from chatbot.stores.errors import ReadOnlyFolder as ReadOnlyFolder
from chatbot.stores.errors import StoreAway as StoreAway
from chatbot.stores.errors import StoreBusy as StoreBusy
from chatbot.stores.errors import StoreError as StoreError
from chatbot.stores.errors import StoreFailed as StoreFailed
from chatbot.stores.errors import UnknownObservation as UnknownObservation
from chatbot.stores.errors import UnknownOutcome as UnknownOutcome
from chatbot.stores.errors import UnknownProject as UnknownProject
from chatbot.stores.errors import UnknownStore as UnknownStore
from chatbot.stores.errors import UnsafePath as UnsafePath
from chatbot.stores.errors import UnsupportedOperation as UnsupportedOperation
from chatbot.stores.observation import Observation as Observation
from chatbot.stores.observation import Triple as Triple
from chatbot.stores.query import FactFilter as FactFilter
from chatbot.stores.query import Filter as Filter
from chatbot.stores.records import KeyValue as KeyValue
from chatbot.stores.records import SessionRef as SessionRef
from chatbot.stores.records import TranscriptEntry as TranscriptEntry
from chatbot.stores.row_events import Event as Event
from chatbot.stores.row_events import Outcome as Outcome

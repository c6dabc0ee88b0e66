"""Stores: the contracts, the plug-ins that ship, and the kit that tests them. Imports nothing of the app."""

if __name__ == "stores":  # a second import would duplicate every class
    raise ModuleNotFoundError("import chatbot.stores: the folder stores/ is a part of chatbot", name=__name__)

from chatbot.stores.access import View as View
from chatbot.stores.base import KeyValueStore as KeyValueStore
from chatbot.stores.base import ObservationStore as ObservationStore
from chatbot.stores.base import Store as Store
from chatbot.stores.base import TranscriptStore as TranscriptStore
from chatbot.stores.observation import Observation as Observation
from chatbot.stores.observation import Triple as Triple
from chatbot.stores.query import FactFilter as FactFilter
from chatbot.stores.query import Filter as Filter
from chatbot.stores.records import KeyValue as KeyValue
from chatbot.stores.records import SessionRef as SessionRef
from chatbot.stores.records import TranscriptEntry as TranscriptEntry
from chatbot.stores.row_events import Event as Event
from chatbot.stores.row_events import Outcome as Outcome

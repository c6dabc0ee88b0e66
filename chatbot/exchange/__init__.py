"""Sessions and memories on their way out and in: parsers from bytes to values, renderers, and one writer.

A file from elsewhere is a stranger's. What it says is data: it can forge no entry of a transcript, name no store to
load, choose no folder, and lower no gate.
"""

from chatbot.exchange.exported import Exported, export_session
from chatbot.exchange.importing import Importer
from chatbot.exchange.memories import export_memories
from chatbot.exchange.report import Report
from chatbot.exchange.sources import KINDS, Source, open_source

__all__ = ["KINDS", "Exported", "Importer", "Report", "Source", "export_memories", "export_session", "open_source"]

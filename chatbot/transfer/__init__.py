"""Import and export of sessions and memories: parsers from bytes to values, renderers, and one writer.

An imported file is untrusted data: it cannot forge a transcript entry, name a store to load, choose a folder, or widen
what a caller may see.
"""

from chatbot.transfer.exports import SessionExport, export_memories, export_session
from chatbot.transfer.importer import Importer
from chatbot.transfer.items import ImportReport
from chatbot.transfer.sources import KINDS, Source, open_source

__all__ = [
    "KINDS",
    "ImportReport",
    "Importer",
    "SessionExport",
    "Source",
    "export_memories",
    "export_session",
    "open_source",
]

"""Import and export of sessions and memories, backups, and sync between machines.

An imported file is untrusted data: it cannot forge a transcript entry, name a store to load, choose a folder, or widen
what a caller may see.
"""

from chatbot.transfer.exports import export_memories, export_session
from chatbot.transfer.importer import Importer, ImportReport
from chatbot.transfer.sources import open_source

__all__ = ["ImportReport", "Importer", "export_memories", "export_session", "open_source"]

"""Sessions and what they remember: `MemorySystem` issues them, `SessionHandle` reads and writes one."""

from chatbot.memory.handle import SessionFile, SessionHandle
from chatbot.memory.record import SessionRecord
from chatbot.memory.session_filter import SessionFilter
from chatbot.memory.system import MemorySystem

__all__ = ["MemorySystem", "SessionFile", "SessionFilter", "SessionHandle", "SessionRecord"]

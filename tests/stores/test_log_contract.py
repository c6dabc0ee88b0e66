"""The contract kit on the log of files."""

from chatbot.stores.testing.log_contract import LogContract


class TestFileLog(LogContract):
    opener = "chatbot.stores.observations.log:FileLog"

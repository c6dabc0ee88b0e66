"""The chat in the terminal: the loop, its slash commands, and the file of the lines that were typed."""

HISTORY_NAME = "prompt_history"

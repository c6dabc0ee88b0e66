"""The chat in the terminal: the loop, and its slash commands."""

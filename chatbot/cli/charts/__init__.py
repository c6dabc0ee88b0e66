"""Charts: on the terminal, and as one self-contained page."""

"""`chatbot doctor`: check the installation, suggest fixes, and with `--fix` apply them.

A check changes nothing. A fix destroys nothing: a damaged file is first set aside, whole, next to the new one.
"""

from chatbot.cli.doctor.command import run

__all__ = ["run"]

"""`chatbot doctor`: looks at everything, says how to mend what is wrong, and with `--fix` mends it.

Looking changes nothing. Mending destroys nothing: whatever is damaged is set aside first, whole, beside the file.
"""

from chatbot.cli.doctor.command import run

__all__ = ["run"]

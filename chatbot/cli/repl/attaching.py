"""Files that the user types into a message: `@notes.pdf`, `@~/photo.png` or `@"my notes.pdf"`.

Only what was typed names a file: a pasted text may come from anywhere, and must not make the chat read one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from chatbot.stores.errors import InvalidValue

if TYPE_CHECKING:
    from chatbot.attachments.read import Upload

_NAMED = re.compile(r"""(?<!\S)@(?:"([^"\n]+)"|([^\s"]+))""")
_ENDS = ".,;:!?)"
"""Characters that end a sentence, not the name of a file."""


class PastedTexts:
    """Texts that were pasted during this chat."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def bind(self, keys: KeyBindings) -> None:
        """Take note of each paste, and insert it as usual."""

        @keys.add(Keys.BracketedPaste)
        def _(event: KeyPressEvent) -> None:
            text = event.data.replace("\r\n", "\n").replace("\r", "\n")
            self.note(text)
            event.current_buffer.insert_text(text)

    def note(self, text: str) -> None:
        """Remember a pasted text, as far as it could name a file."""
        if "@" in text:
            self._texts.append(text)

    def holds(self, text: str) -> bool:
        """Return whether the text was pasted, alone or in another."""
        return any(text in each for each in self._texts)


def attached(text: str, pasted: PastedTexts) -> tuple[str, list[Upload]]:
    """Return the message with the names of its files in place of their paths, and the files.

    What names no file stays as it is, unless it looks like a path: then `InvalidValue` is raised. Blocking.
    """
    from chatbot.attachments.read import file_named, uploaded

    files: list[Upload] = []

    def named(found: re.Match[str]) -> str:
        if pasted.holds(found[0]):
            return found[0]
        for name in _readings(found):
            if file_named(name) is not None:
                files.append(uploaded(name))
                return files[-1].name + (found[2] or "")[len(name) :]
        if found[1] or "/" in found[2]:
            raise InvalidValue(f"file not found: {found[1] or found[2]!r}; correct its name, or leave out the @")
        return found[0]

    return _NAMED.sub(named, text), files


def _readings(found: re.Match[str]) -> Iterable[str]:
    """Return what the name may be: as it was typed, and without what ends the sentence."""
    return [found[1]] if found[1] else dict.fromkeys([found[2], found[2].rstrip(_ENDS)])

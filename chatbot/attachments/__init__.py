"""Files and pictures of a message, and the links that name them in a transcript.

Links are plain Markdown, on lines of their own at the end of a message:

    [photo.png](attachments/0f…e1.png)
    [notes.pdf](attachments/77…02.pdf) ([text](attachments/9a…3c.txt))
"""

import re
from collections.abc import Iterable

from msgspec import Struct

from chatbot.stores.backend import ATTACHMENTS, suffix_of

PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
ODT = "application/vnd.oasis.opendocument.text"
TEXT = "text/plain"
SUFFIXES = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    PDF: ".pdf",
    DOCX: ".docx",
    ODT: ".odt",
    TEXT: ".txt",
}
"""Suffixes of kept files by media type. HTML and SVG are text like any other: nothing opens them as a page."""
MEDIA_TYPES = {suffix: media for media, suffix in SUFFIXES.items()}

_BLOB = rf"{ATTACHMENTS}/([0-9a-f]{{32}}(\.[a-z0-9]{{1,8}})?)"
_LINK = rf"\[([^\[\]\n]{{1,255}})\]\({_BLOB}\)(?: \(\[text\]\({_BLOB}\)\))?"
_UNNAMEABLE = r"[\[\]\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
_LONGEST_NAME = 120


def media_of(blob: str) -> str:
    """Return the media type of a kept file, by the suffix of its name."""
    return MEDIA_TYPES.get(suffix_of(blob), "application/octet-stream")


def is_image(media: str) -> bool:
    """Return whether this is the media type of a picture, which has no text: models are shown the picture itself."""
    return media.startswith("image/")


class Link(Struct, frozen=True):
    """An attachment as a transcript names it. `text` names the blob with its extracted text; empty for a picture."""

    name: str
    blob: str
    text: str = ""

    @property
    def media(self) -> str:
        """Its media type, by the suffix of its blob."""
        return media_of(self.blob)

    def __str__(self) -> str:
        also = f" ([text]({ATTACHMENTS}/{self.text}))" if self.text and self.text != self.blob else ""
        return f"[{self.name}]({ATTACHMENTS}/{self.blob}){also}"


def link_name(name: str) -> str:
    """Return a file's name for a link: without folders, brackets and control characters."""
    plain = re.sub(_UNNAMEABLE, "_", name.replace("\\", "/").rpartition("/")[2]).strip()
    return plain if len(plain) <= _LONGEST_NAME else f"{plain[: _LONGEST_NAME // 2]}…{plain[-_LONGEST_NAME // 2 :]}"


def with_links(text: str, links: Iterable[Link]) -> str:
    """Return a message with its attachments named at its end."""
    return "\n\n".join(filter(None, [text, "\n".join(map(str, links))]))


def split_links(content: str) -> tuple[str, tuple[Link, ...]]:
    """Return a message without the links at its end, and the links."""
    lines = content.split("\n")
    links: list[Link] = []
    while lines and (found := re.fullmatch(_LINK, lines[-1])):
        name, blob, suffix, text, _ = found.groups()
        links.append(Link(name, blob, text or (blob if suffix == ".txt" else "")))
        lines.pop()
    return "\n".join(lines).rstrip("\n") if links else content, tuple(reversed(links))


def with_file_names(content: str) -> str:
    """Return a message with only the names of its attachments, for titles, memory and search."""
    text, links = split_links(content)
    return "\n".join(filter(None, [text, *(f"[{link.name}]" for link in links)]))

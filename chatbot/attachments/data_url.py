"""`data:` URLs, in which clients send files and pictures; nothing is fetched from any other address."""

from __future__ import annotations

import base64
import binascii
import re
from urllib.parse import unquote_to_bytes

from chatbot.attachments.kinds import SUFFIXES
from chatbot.attachments.read import Upload
from chatbot.stores.errors import InvalidValue

_URL = re.compile(r"data:([a-z0-9.+/-]*)((?:;[^,;]*)*),(.*)", re.IGNORECASE | re.DOTALL)


def upload_of(name: str, url: str) -> Upload:
    """Return the file in a `data:` URL. Raises `InvalidValue` for anything else."""
    found = _URL.fullmatch(url)
    if not found:
        raise InvalidValue(f"{name}: a file must be sent along, as data:…;base64,…: nothing is fetched from elsewhere")
    if not found[2].lower().endswith(";base64"):
        return Upload(name, unquote_to_bytes(found[3]))
    try:
        return Upload(name, base64.b64decode("".join(found[3].split()), validate=True))
    except (binascii.Error, ValueError) as error:
        raise InvalidValue(f"{name}: the data: URL is not valid base64") from error


def picture_of(number: int, url: str) -> Upload:
    """Return the picture in a `data:` URL under a name of its own."""
    media = url[5:].partition(";")[0].lower()
    return upload_of(f"picture-{number}{SUFFIXES.get(media, '')}", url)

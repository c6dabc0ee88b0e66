"""What one process analysed and no segment holds, in a file beside the segments: the next one need not do it again.

The file is replaced as a whole, sealed with the key of the cache, and removed by whoever changes which segments count.
What it says of a row is used only while the row's text is of the version that it names.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from stores.files import Folder
from stores.observations.overlay import Text
from stores.observations.sealing import Damaged, sealed, unsealed
from stores.observations.segments import FORMAT, is_ours

logger = logging.getLogger(__name__)

NAME = "analysed.json"
_MAGIC = f"chatbot analysed {FORMAT}\n".encode()


def write(place: Folder, texts: Mapping[int, Text], key: bytes) -> None:
    """Put these texts in the place of those that are there. Needs the lock of the index; a power cut may lose it."""
    rows = [[row, text.seq, text.postings] for row, text in texts.items()]
    body = json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode()
    place.replace(NAME, sealed(_MAGIC, body, key), durable=False)


def read(folder: Path, key: bytes) -> dict[int, Text]:
    """The texts by their rows; none where there is no file, or none that we wrote."""
    path = folder / NAME
    try:
        data = path.read_bytes() if is_ours(path) else b""
        return {row: Text(seq, postings) for row, seq, postings in json.loads(bytes(unsealed(_MAGIC, data, key)))}
    except FileNotFoundError:
        return {}
    except (Damaged, OSError, ValueError, TypeError) as error:
        logger.warning("%s is of no use, and what it held is analysed again: %s", path, error)
        return {}

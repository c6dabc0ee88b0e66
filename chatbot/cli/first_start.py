"""The offer of `chatbot setup`, made once in the life of an installation."""

from __future__ import annotations

from platformdirs import user_data_path

from chatbot.stores.errors import StoreError
from chatbot.stores.files import make_folder, opened

OFFER = "no model is set up yet: /setup finds keys and model servers; it looks for nothing before your yes"
_NAME = "setup_offered"


def is_first_offer() -> bool:
    """Return True once in the life of an installation: the offer is made at the first interactive start."""
    folder = user_data_path("chatbot")
    try:
        make_folder(folder)
        with opened(folder) as place:
            if place.stamp(_NAME):
                return False
            place.create(_NAME, b"", durable=False)
    except (OSError, StoreError):
        return False
    return True

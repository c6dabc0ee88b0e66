"""How often a test tries: a share of it in the usual run, all of it at night, with `CHATBOT_NIGHTLY=1`."""

import os

from hypothesis import settings

NIGHTLY = os.environ.get("CHATBOT_NIGHTLY", "") not in {"", "0"}
_SHARE = 4

settings.register_profile("usual", deadline=None, max_examples=100 // _SHARE)
settings.register_profile("nightly", deadline=None, max_examples=100)


def rounds(nightly: int) -> int:
    """How many rounds to play, of so many at night."""
    return nightly if NIGHTLY else max(nightly // _SHARE, 1)


def examples(nightly: int) -> int:
    """How many examples Hypothesis shall make, of so many at night or with `--hypothesis-profile nightly`."""
    is_nightly = settings.get_current_profile_name() == "nightly"
    return nightly if is_nightly else max(nightly // _SHARE, 1)

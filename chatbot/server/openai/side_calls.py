"""Calls that a front end makes for itself: a title for a chat, tags, questions to go on with, a search query.

They quote a conversation that is remembered already, so they are answered and not remembered. A call is one only where
it begins as the front end's published prompt does and holds its other marks, in its one message of a user: someone who
merely asks for a title is remembered like anybody.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from chatbot.messages import Message

_OPEN_WEBUI = re.compile(r"\A\s*### Task:\s*\S.*<chat_history>.*</chat_history>", re.DOTALL)
"""Titles, tags, follow-ups, queries, image prompts and completions of what is typed."""
_OPEN_WEBUI_EMOJI = re.compile(r"\A\s*Your task is to reflect the speaker's likely facial expression through a fitting")
_OPEN_WEBUI_MERGE = re.compile(r"\A\s*You have been provided with a set of responses from various models to the latest")
_LIBRECHAT = re.compile(
    r"\A\s*Analyze this conversation and provide:\s*1\. The detected language of the conversation\s*2\. A concise title"
)
_LIBRECHAT_COMPLETION = re.compile(
    r"\A\s*(?:Provide|Please generate) a concise, 5-word-or-less title for the conversation,.*title case", re.DOTALL
)
_LIBRECHAT_OLDER = re.compile(
    r"\A\s*Write a concise title for this conversation in the detected language\. Title in 5 Words or Less\."
)
_SHAPES = (
    *(_OPEN_WEBUI, _OPEN_WEBUI_EMOJI, _OPEN_WEBUI_MERGE),
    *(_LIBRECHAT, _LIBRECHAT_COMPLETION, _LIBRECHAT_OLDER),
)


def is_side_call(messages: Sequence[Message]) -> bool:
    """Return whether a front end asks this for itself."""
    said = [each for each in messages if each.content]
    return len(said) == 1 and any(shape.match(said[0].content) for shape in _SHAPES)

"""What of an observation is searched: its texts as terms, field by field, and the dates that they name."""

from __future__ import annotations

from stores.analysis import terms
from stores.dates import date_terms, moment_terms
from stores.observation import Observation

Document = dict[str, list[str]]
"""The terms of each field that has any."""


def document_of(row: Observation) -> Document:
    """The terms of an observation."""
    texts = {
        "title": (row.title, row.subtitle, row.subject),
        "narrative": (row.narrative,),
        "facts": row.facts,
        "tags": (*row.tags, *row.concepts, row.category),
        "people": row.people,
        "user": (row.user_text,),
        "assistant": (row.assistant_text,),
    }
    dates = [*moment_terms(row.created_at), *date_terms(row.text(), row.created_at)]
    found = {name: terms("\n".join(filter(None, parts))) for name, parts in texts.items()}
    return {name: words for name, words in found.items() if words} | {"dates": dates}


SEARCHED = (
    "title",
    "subtitle",
    "subject",
    "narrative",
    "facts",
    "tags",
    "concepts",
    "category",
    "people",
    "user_text",
    "assistant_text",
)
"""The fields of an observation that a document is made of."""

"""Searchable part of an observation: its texts as terms by field, and the dates in them."""

from __future__ import annotations

from operator import attrgetter

from chatbot.stores.fields import SearchField
from chatbot.stores.observation import FIELDS, Observation
from chatbot.stores.text.analysis import terms
from chatbot.stores.text.dates import date_terms, moment_terms

Document = dict[str, list[str]]
"""The terms of each field that has any."""


def document_of(row: Observation) -> Document:
    """The terms of an observation."""
    texts: dict[str, list[str]] = {}
    for field, value in zip(_INDEXED, _searched(row), strict=True):
        if value:
            texts.setdefault(field, []).append(value if isinstance(value, str) else "\n".join(value))
    dates = [*moment_terms(row.created_at), *date_terms(row.text(), row.created_at)]
    found = {name: words for name, parts in texts.items() if (words := terms("\n".join(parts)))}
    return found | {"dates": dates}


_FIELD_OF = {each.name: mark.field for each in FIELDS.values() if (mark := each.mark(SearchField))}
SEARCHED = tuple(_FIELD_OF)
"""Fields of an observation that form its document."""
_INDEXED = tuple(_FIELD_OF.values())
_searched = attrgetter(*SEARCHED)

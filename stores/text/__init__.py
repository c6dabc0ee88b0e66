"""Texts as search terms: words, dates, and how well a text answers a question; and texts without secrets."""

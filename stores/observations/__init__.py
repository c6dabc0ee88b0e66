"""Observations in files: a journal that is the truth, and beside it a text index that may be deleted at any time."""

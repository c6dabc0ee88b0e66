"""How long a test waits for something that is sure to come: the one bound, so that a busy machine fails no test."""

PATIENCE_S = 200.0
"""Less than the time limit of a test, which cannot say what it waited for."""

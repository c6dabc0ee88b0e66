"""Keeping memory small and worth reading: it fades, what is alike is merged, what was kept for long enough goes."""

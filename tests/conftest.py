"""Shared fixtures. Every test runs in an empty home with no configuration and no provider keys."""

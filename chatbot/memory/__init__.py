"""Sessions and what they remember."""

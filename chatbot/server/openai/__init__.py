"""Routes compatible with OpenAI's API."""

"""The routes that any client of OpenAI can use."""

"""The app: identities, sessions and models behind a terminal. See `chatbot.memory` to embed only the memory."""

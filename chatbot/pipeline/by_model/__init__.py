"""What a model does beside the conversation, where `[extraction]` asks for it: facts, reconciliation, summaries."""

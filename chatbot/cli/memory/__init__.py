"""`chatbot memory`: its verbs, their grammar, and what they print."""

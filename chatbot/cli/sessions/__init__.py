"""`chatbot sessions`: looking at sessions, changing them, and moving them from place to place."""

"""`chatbot sessions`: show, change, export and import sessions."""

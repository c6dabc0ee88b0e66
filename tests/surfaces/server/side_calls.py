"""Prompts in the shapes that Open WebUI and LibreChat publish, with a conversation filled in."""

_HISTORY = "### Chat History:\n<chat_history>\nUSER: I play chess.\nASSISTANT: So do I.\n</chat_history>"
_OPEN_WEBUI = (
    ("Generate a concise, 3-5 word title with an emoji summarizing the chat history.", '{ "title": "a title" }'),
    ("Generate 1-3 broad tags categorizing the main themes of the chat history.", '{ "tags": ["tag1", "tag2"] }'),
    ("Suggest 3-5 relevant follow-up questions or prompts that the user might ask next.", '{ "follow_ups": ["A?"] }'),
    ("Analyze the chat history to determine the necessity of generating search queries.", '{ "queries": ["a"] }'),
)
SIDE_CALLS = [
    *(
        f"### Task:\n{task}\n\n### Guidelines:\n- Be brief.\n\n### Output:\nJSON format: {form}\n\n{_HISTORY}"
        for task, form in _OPEN_WEBUI
    ),
    (
        "Analyze this conversation and provide:\n1. The detected language of the conversation\n2. A concise title in "
        "the detected language (5 words or less, no punctuation or quotation)\n\nUser: I play chess.\nAI: So do I."
    ),
    (
        "Provide a concise, 5-word-or-less title for the conversation, using title case conventions. Only return the "
        "title itself.\n\nConversation:\nUser: I play chess.\nAI: So do I."
    ),
    (
        "Write a concise title for this conversation in the detected language. Title in 5 Words or Less. No "
        "Punctuation or Quotation.\nUser: I play chess.\nAI: So do I."
    ),
]

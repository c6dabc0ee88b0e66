"""Rules for texts about tools that only serve to steer a model, though they may be harmless in a user's note."""

from chatbot.chat.rules.rule import Rule, form, phrase

OF_TOOLS: tuple[Rule, ...] = (
    phrase("secrecy", "do|don|never (?:not |t )?(?:mention|disclose|reveal) WORDS{0,4}(?:you|this|that|it|file|step)"),
    form("disguise", r"<\s*/?\s*(?:important|system|secret|instructions?|hidden)\s*>"),
    phrase(
        "errand",
        "before|after|whenever|when WORDS{0,2}(?:using|calling|you use|you call|use|call) WORDS{0,2}tools? "
        "(?:always |first |you must )?(?:read|open|send|upload|forward|fetch|copy) ",
        "pass|send|put|include (?:its|the|their) contents? (?:as|in|into|to) ",
    ),
)

"""The rules by which a remembered text is taken for an instruction. Tables, so that a receipt can name the rule.

What they are for: to catch what is plainly written to steer a model, in any of its usual disguises, with few false
alarms. They look for an order together with what makes it an attack ("ignore" with "previous instructions", "tell" with
"the user"), never for a word alone. Where they end: an order in a language that is not listed, in a paraphrase that
nobody has met, in a cipher, or one that is only wrong ("the bank's new number is …") passes them. They also drop a text
that merely quotes an attack. They are a net; the fence of the memory block and its role as data are the wall.
"""

from __future__ import annotations

from collections.abc import Iterable

from chatbot.chat.disguises import unmasked
from chatbot.chat.rules.english import ENGLISH
from chatbot.chat.rules.forms import FORMS
from chatbot.chat.rules.languages import LANGUAGES
from chatbot.chat.rules.rule import Rule

RULES: tuple[Rule, ...] = (*ENGLISH, *FORMS, *LANGUAGES)
"""In this order: the first that matches names the reason."""


def rule_against(texts: Iterable[str]) -> str | None:
    """The name of the first rule that the texts of one row break, each alone or one after another; None for none."""
    parts = tuple(texts)
    for joined in dict.fromkeys(("\n".join(parts), "".join(parts))):
        for reading in unmasked(joined):
            for rule in RULES:
                if rule.pattern.search(reading):
                    return rule.name
    return None

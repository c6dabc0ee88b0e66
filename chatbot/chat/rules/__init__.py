"""The rules by which a remembered text is taken for an instruction. Tables, so that a receipt can name the rule.

What they are for: to catch what is plainly written to steer a model, in any of its usual disguises, with few false
alarms. They look for an order together with what makes it an attack ("ignore" with "previous instructions", "tell" with
"the user"), never for a word alone. A user's wish for the style of replies ("always answer me in German") is no attack.
Where they end: an order in a language that is not listed, in an unknown paraphrase, in a cipher, or one that
is only wrong ("the bank's new number is …") passes them. Of attacks worded after the rules were written most pass
(`tests/poisoning/attacks_later.toml`). They also drop a text that merely quotes an attack. They are a net; the fence of
the memory block and its role as data are the wall.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from chatbot.chat.disguises import unmasked
from chatbot.chat.rules.english import ENGLISH, OF_TOOLS
from chatbot.chat.rules.languages import LANGUAGES
from chatbot.chat.rules.rule import FORMS, Rule, RuleTable

RULES: tuple[Rule, ...] = (*ENGLISH, *FORMS, *LANGUAGES)
"""In this order: the first that matches names the reason."""
OF_ROWS = RuleTable(RULES)
TOOL_RULES = RuleTable((*RULES, *OF_TOOLS))
"""Rules for what a stranger's tool says of itself."""
_SEAM = 120
"""Characters on either side within which an order may be split in the middle of a word."""
_LONGEST_KEPT = 4_000
"""Length in characters up to which the outcome for a row is cached."""


def rule_against(texts: Iterable[str], rules: RuleTable = OF_ROWS) -> str | None:
    """The name of the first rule that the texts of one row break, each alone or one after another; None for none."""
    parts = tuple(texts)
    if not any(parts):
        return None
    return _broken(parts, rules) if sum(map(len, parts)) > _LONGEST_KEPT else _remembered(parts, rules)


@lru_cache(maxsize=1024)
def _remembered(parts: tuple[str, ...], rules: RuleTable) -> str | None:
    """The same for what is likely to be recalled again."""
    return _broken(parts, rules)


def _broken(parts: tuple[str, ...], rules: RuleTable) -> str | None:
    for joined in dict.fromkeys(("\n".join(parts), "".join(map(_ends, parts)))):
        for reading in unmasked(joined):
            if name := rules.broken(reading):
                return name
    return None


def _ends(part: str) -> str:
    """The part, without the middle of a long one: an order may be split where one part is followed by another."""
    return part if len(part) <= 2 * _SEAM else f"{part[:_SEAM]}\n{part[-_SEAM:]}"

"""Negation of a text, so that a statement is never merged with its denial nor taken for a repetition of it. Pure.

A short list of words, and rather too often than too seldom: texts that negate differently merely count as different.
"""

from __future__ import annotations

import re

from chatbot.stores.text.analysis import terms

_NEGATION = re.compile(
    r"(?<!\w)(?:not|no|never|none|nobody|nothing|nowhere|neither|nor|without|cannot|\w+n['’]t|"
    r"(?:do|does|did|is|are|was|were|have|has|had|would|should|could|ca|wo|must|need)nt|"
    r"stopped|stop|quit|quits|gave up|given up|used to|ceased|former(?:ly)?|ex|"
    r"instead of|rather than|false|untrue|wrong|hardly|unable|refus\w+|denie[sd]|deny|lack\w*|"
    r"nicht|kein|keine[mnrs]?|nie|niemals|nirgends|ohne|weder|ne|pas|jamais|aucune?|rien|sans|plus|"
    r"nunca|jam[aá]s|ning[uú]n[ao]?|nada|sin|tampoco|não|nenhuma?|sem|nem|non|mai|nessun[ao]?|senza|"
    r"niet|geen|nooit|zonder|bez|не|нет|никогда|без|inte|aldrig|utan|ikke|aldri)(?!\w)|"
    r"[不没沒未無无非]|ない|ません|なかった|아니|않|안\s|못",
    re.IGNORECASE,
)


def negations(text: str) -> int:
    """Return how often a text negates something."""
    return len(_NEGATION.findall(text))


def contradict(one: str, other: str) -> bool:
    """Return whether two texts may be a statement and its denial: alike in words, and negated differently."""
    if negations(one) == negations(other):
        return False
    words, others = set(terms(one)), set(terms(other))
    return 2 * len(words & others) >= min(len(words), len(others))

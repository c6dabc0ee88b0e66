"""Patterns of rules are compiled when a text may match them: each of them can be compiled."""

from chatbot.chat.rules import TOOL_RULES


def test_every_pattern_can_be_compiled() -> None:
    forms = [rule.form for rule in TOOL_RULES.rules if rule.form]
    phrases = [phrase for rule in TOOL_RULES.rules for phrase in rule.phrases]
    assert all(form.pattern.groups >= 0 and (not form.script or form.letters) for form in forms)
    assert all(phrase.tail.groups >= 0 for phrase in phrases)
    assert len(forms) + len(phrases) > 100

"""Judging takes time in proportion to a text's length, whatever the text is made of."""

import time

import pytest

from chatbot.chat.rules import RULES, TOOL_RULES, rule_against

LONG = 100_000


def test_no_phrase_takes_long_on_repetitions_of_its_own_heads() -> None:
    heads = sorted({head for rule in RULES for phrase in rule.phrases for head in phrase.heads})
    texts = [
        " ".join(heads),
        "always in every of your the all ",
        "you are a a a , ",
        "when asked about a a ",
        "答 すべて 規則 ",
    ]
    for text in (*texts, *(f"{head} " for head in heads[:: len(heads) // 8])):
        started = time.process_time()
        rule_against(((text * (LONG // len(text) + 1))[:LONG],), TOOL_RULES)
        assert time.process_time() - started < 5, text[:40]


@pytest.mark.parametrize("sign", ["<", "&#", "%", "[", "(", "=", "#\n", "\\x", "A ", "a.", "🇦", "가", "あ", "我", "ا "])
def test_no_form_takes_long_on_repeated_signs(sign: str) -> None:
    started = time.process_time()
    rule_against((sign * (LONG // len(sign)),), TOOL_RULES)
    assert time.process_time() - started < 5

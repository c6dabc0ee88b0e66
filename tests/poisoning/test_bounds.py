"""Judging takes time in proportion to a text's length, whatever the text is made of."""

import time

import pytest

from chatbot.orders import form_in, plain_orders

LONG = 100_000


@pytest.mark.parametrize(
    "sign",
    ["<", "&#", "%", "[", "(", "=", "#\n", "\\x", "A ", "a.", "🇦", "가", "あ", "我", "ا ", "ignore all previous "],
)
def test_no_form_takes_long_on_repeated_signs(sign: str) -> None:
    started = time.process_time()
    form_in((sign * (LONG // len(sign)),))
    assert time.process_time() - started < 5


def test_the_plain_orders_are_few_and_different() -> None:
    assert len(plain_orders()) == len(set(plain_orders())) <= 60

"""Judging takes time in proportion to a text's length, whatever the text is made of."""

import time

import pytest

from chatbot.chat.governor import LONGEST_JUDGED, judge
from chatbot.memory.orders import form_in, plain_orders
from tests.poisoning.suite import VIEW, row_with


@pytest.mark.parametrize(
    "unit",
    ["<", "&#", "&#65;", "%", "%41", "[", "(", "((", "{", "=", "#\n", "# ", " \n", "\\x", "A ", "a.", "i.g.", "ab",
     "QUJD", "a ", "🇦", "가", "あ", "我", "ا ", "\u0430", "ignore all previous ", "ignore ", "you are now an ", "the ",
     "send ", "whenever the user asks ", "system:", "[INST]", "![x](", "[a](//", "<img src=//a?", '"name": "',
     " " * 299 + "\n", *(begin + " " * LONGEST_JUDGED for begin in ("<|", "[|", "<", "[", "user", "(", "&#", "</"))],
)  # fmt: skip
def test_no_text_takes_long(unit: str) -> None:
    text = (unit * (LONGEST_JUDGED // len(unit) + 1))[:LONGEST_JUDGED]
    started = time.process_time()
    form_in((text,))
    judge(row_with(("narrative",), (text,)), VIEW)
    assert time.process_time() - started < 2


def test_the_plain_orders_are_few_and_different() -> None:
    assert len(plain_orders()) == len(set(plain_orders())) <= 60

"""Memorability: the score of tool runs and its threshold, and which exchanges are worth keeping."""

import pytest

from chatbot.embedder import Judgement
from chatbot.memory.memorability import is_worth_keeping


@pytest.mark.parametrize(
    ("texts", "kept"),
    [
        (
            ["My PIN is 4711", "I'm vegetarian", "allergic to nuts", "我吃素", "東京に行きました", "What is a monad?"],
            True,
        ),
        (["", "ok", "yes", "how are you?", "so be it then", "🙂", "?!"], False),
    ],
)
def test_without_a_judgement_whatever_has_content_is_kept(texts: list[str], *, kept: bool) -> None:
    for text in texts:
        assert is_worth_keeping(text, "You are welcome! The harbour is deep.", None) is kept, text


@pytest.mark.parametrize(
    ("states", "needs", "kept"), [(True, False, True), (True, True, True), (False, True, True), (False, False, False)]
)
def test_a_judgement_decides(*, states: bool, needs: bool, kept: bool) -> None:
    judged = judgement(states=states, needs=needs)
    assert is_worth_keeping("The spare key hangs behind the door.", "Good to know.", judged) is kept


def test_a_question_whose_answer_repeats_what_was_recalled_is_not_kept_and_a_statement_is() -> None:
    known = ["The spare key hangs in the green cabinet behind the kitchen door."]
    asks, states = judgement(needs=True), judgement(states=True, needs=True)
    assert not is_worth_keeping("Where is the spare key?", known[0], asks, known=known)
    assert not is_worth_keeping("Where is the spare key?", "🙂", asks)
    assert is_worth_keeping("Where is the spare key?", known[0], asks)
    assert is_worth_keeping("The spare key moved to the garage.", known[0], states, known=known)


@pytest.mark.parametrize(
    ("question", "text", "is_answer"),
    [
        ("What is your favourite colour?", "blue", True), ("How old are you?", "44 years", True),
        ("Do you have any pets?", "just cats", True), ("你最喜欢什么颜色？", "蓝色", True),
        ("Are you a vegetarian cook?", "yes", True), ("How are you?", "fine", False), ("Anything else?", "no", False),
        ("Which vinegar do you mean?", "Which do you have?", False),
        ("Which vinegar do you mean?", "Write down what the harbour master of Gotland said about it", False),
    ],
)  # fmt: skip
def test_only_a_short_answer_is_kept_whatever_the_judgement(question: str, text: str, *, is_answer: bool) -> None:
    assert is_worth_keeping(text, "Noted.", judgement(), question=question) is is_answer
    assert not is_worth_keeping(text, "Noted.", judgement())


def judgement(*, states: bool = False, needs: bool = False) -> Judgement:
    return Judgement(needs, states, 0, {})

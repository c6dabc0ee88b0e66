"""Changes that a later sentence announces, in whatever form the first one was said."""

import pytest

from chatbot.memory.announced import announces
from chatbot.memory.changes import changes, statement

ANNOUNCED = [
    ("My gym is called Pulse.", "I cancelled Pulse last night."),
    ("Our cleaner is Mrs. Duarte.", "Mrs. Duarte retired, so we do it ourselves."),
    ("The membership costs 30 a month.", "They raised the membership to 35."),
    ("Choir practice is on Tuesdays.", "From now on choir practice is on Fridays."),
    ("My cousin Ben is in second grade.", "Ben is in third grade now."),
    ("We are planning a garden wedding.", "It was only talk, we are not planning a garden wedding."),
]
HOLDING = [
    ("My gym is called Pulse.", "My sister cancelled Pulse."),
    ("The membership costs 30 a month.", "The parking costs 5 now."),
    ("Choir practice is on Tuesdays.", "Choir practice is now also on Fridays."),
    ("I bought 3 lamps yesterday.", "There are 5 lamps in the hall now."),
    ("My brother plays the harp.", "My daughter no longer plays the harp."),
    ("Is choir practice on Tuesdays?", "Choir practice is on Fridays now."),
    ("My friend Omar sings.", "My friend Lena doesn't sing."),
]


@pytest.mark.parametrize(("first", "later"), ANNOUNCED)
def test_a_change_that_is_announced_outdates_what_was_said(first: str, later: str) -> None:
    assert announces([later], [first])
    assert changes(statement(first), statement(later))


@pytest.mark.parametrize(("first", "later"), HOLDING)
def test_what_is_said_of_another_or_besides_outdates_nothing(first: str, later: str) -> None:
    assert not announces([later], [first])


@pytest.mark.parametrize("later", ["The boiler is ten years old.", "The boiler is serviced by Ann."])
def test_two_things_that_are_told_of_one_are_both_so(later: str) -> None:
    assert not changes(statement("The boiler is in the cellar."), statement(later))

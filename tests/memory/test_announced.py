"""Changes that a later sentence announces, in whatever form the first one was said."""

import pytest

from chatbot.memory.announced import announces, may_change
from chatbot.memory.changes import changes, statement
from chatbot.memory.scoring import outstanding

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


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ("Theo can't have almonds, so there are none here.", "Theo quit judo. I drive him to choir instead."),
        ("My sister has a latex allergy.", "My sister sold the boat."),
        ("Mustard makes me sick, so I must never eat it.", "I no longer skip lunch, I eat soup at noon."),
    ],
)
def test_a_change_of_one_thing_leaves_other_things_of_the_same_person_alone(first: str, later: str) -> None:
    assert not changes(statement(first), statement(later))


def test_another_thing_of_the_same_kind_outdates_what_was_said_of_somebody() -> None:
    assert changes(statement("Theo works at the bank."), statement("Theo works at the museum now."))


NEAR = [
    ("I take the bus to work.", "I have bought a scooter for the way to work."),
    ("The car loan is at 3 percent.", "Our bank gave us 4 percent for the car loan."),
    ("I'm on the evening team.", "I have moved to the morning team."),
    ("I'm vegetarian.", "I don't mind a steak."),
]
APART = [
    ("I take the bus to work.", "My sister has bought a scooter for the way to work."),
    ("Mara's room is on floor 2.", "Nils's room is on floor 3."),
    ("I ran 5 miles yesterday.", "I ran 8 miles today."),
    ("I take the bus to work.", "Should I buy a scooter for the way to work now?"),
    ("My rent is 900 euros.", "My rent is still 900 euros now."),
    ("I play chess on Mondays.", "I also have a new chess club on Fridays."),
]


@pytest.mark.parametrize(("first", "later"), NEAR)
def test_news_that_stands_out_as_near_in_meaning_may_change_it(first: str, later: str) -> None:
    assert may_change([later], [first], lead=0.1)
    assert not may_change([later], [first])


@pytest.mark.parametrize(("first", "later"), APART)
def test_news_of_another_or_of_the_same_changes_nothing(first: str, later: str) -> None:
    assert not may_change([later], [first], lead=0.1)


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ("I live above a bakery.", "All boxes are unpacked, we love the garden!"),
        ("I teach at a primary school.", "Next week is my first day at the town hall."),
    ],
)
def test_a_move_or_a_new_job_is_told_by_what_comes_with_it(first: str, later: str) -> None:
    assert may_change([later], [first])
    assert not may_change([first], [later])


def test_what_is_nearer_than_all_else_by_far_may_change_it_without_a_word_of_news() -> None:
    assert may_change(["Saturdays belong to the tea trolley in the ward."], ["I sort jigsaws in the shop."], lead=0.3)
    assert not may_change(["I sort jigsaws in the old shop."], ["I sort jigsaws in the shop."], lead=0.3)


@pytest.mark.parametrize(
    ("later", "found"),
    [
        ({"a": 0.6, "b": 0.4, "c": 0.3}, ("a", 0.2)),
        ({"a": 0.6, "b": 0.58}, ("", 0.0)),
        ({"a": 0.35, "b": 0.1}, ("", 0.0)),
        ({"a": 0.6}, ("a", 0.1)),
        ({}, ("", 0.0)),
    ],
)
def test_a_row_stands_out_where_it_is_well_ahead_of_the_next(later: dict[str, float], found: tuple[str, float]) -> None:
    name, lead = outstanding(later)
    assert (name, round(lead, 2)) == found

"""Slots are filled only by what somebody plainly states of themselves."""

from pathlib import Path
from time import process_time

import pytest

from chatbot.memory.profile_learning import in_first_person
from chatbot.memory.slots import stated

SETS = Path(__file__).parents[2] / "benchmarks" / "sets"


def filled(text: str, question: str = "") -> dict[str, str]:
    return {f"{'-' * each.ended}{each.slot}": each.value for each in stated(text, question)}


def lines(name: str) -> list[list[str]]:
    text = (SETS / name).read_text(encoding="utf-8")
    return [[part.strip() for part in line.split("|")] for line in text.splitlines() if line and line[0] != "#"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I live in St. Louis with my wife.", {"home": "St. Louis"}),
        ("I live in a shared flat in Porto now.", {"home": "Porto"}),
        ("I moved into a small house in Leeds.", {"home": "Leeds"}),
        ("I moved into Marketing.", {}),
        ("I live in the U.S. but I'm Dutch.", {"home": "U.S."}),
        ("My sister lives in Breda, I live in Utrecht.", {"home": "Utrecht"}),
        ("I'm a software engineer and I speak German and Thai.", {"job": "software engineer", "speaks": "Thai"}),
        ("I no longer live in Paris, I live in Lyon.", {"-home": "Paris", "home": "Lyon"}),
        ("My boss is called Mr. Brandt.", {"boss": "Mr. Brandt"}),
        ("My name isn't Karen, it's Karin.", {"name": "Karin"}),
    ],
)
def test_what_is_plainly_stated_fills_a_slot(text: str, expected: dict[str, str]) -> None:
    assert filled(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        'She said "I live in Boston".',
        "If I lived in Paris I'd eat croissants.",
        "I'm moving to Bristol in August.",
        "I used to be a nurse.",
        "My brother lives in Oslo.",
        "I'm okay with naming the puppy Waffles.",
        "I'm allergic to mornings.",
        "Translate: I live in Madrid.",
        "Do I live in Berlin?",
        "I live in Nice, I mean Cannes.",
        "My friend's dog is called Bruno.",
        "I moved to Linux a while ago.",
        "I'm a bad cook.",
    ],
)
def test_what_is_quoted_supposed_past_hedged_or_of_others_fills_nothing(text: str) -> None:
    assert filled(text) == {}


def test_of_a_hundred_slots_that_are_filled_five_at_most_are_wrong() -> None:
    filled_slots = wrong = wanted = found = 0
    for question, text, *labels in lines("slots.txt"):
        marked = [label.strip().casefold() for label in "".join(labels).split(";") if label.strip()]
        told = {f"{'-' * each.ended}{each.slot}={each.value}".casefold() for each in stated(text, question)}
        required = {label for label in marked if label[0] != "?"}
        filled_slots += len(told)
        wrong += len(told - {label.removeprefix("?") for label in marked})
        wanted += len(required)
        found += len(required & told)
    assert wrong <= 0.05 * filled_slots
    assert found >= 0.8 * wanted


@pytest.mark.parametrize("text", ["no, " * 600, "((((" * 500, "I live in " * 300, "A A " * 700, ", " * 1_500])
def test_no_message_takes_long_to_read(text: str) -> None:
    begin = process_time()
    stated(text)
    assert process_time() - begin < 0.5


def test_facts_that_a_model_tells_of_the_user_fill_the_same_slots_and_no_wrong_ones() -> None:
    for said, facts, labels in lines("extracted.txt"):
        wanted = {each.strip().casefold() for each in labels.split(";") if each.strip()}
        found = {
            f"{slot}={value}".casefold()
            for fact in facts.split(";")
            for slot, value in filled(in_first_person(fact)).items()
        }
        assert found <= {each.removeprefix("?") for each in wanted}, said

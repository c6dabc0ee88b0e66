"""Where a stretch ends, and how recent rows find their place: tables and properties."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatbot.hooks.temporal import SCALES, Boundary, Interaction, Scale, TopicWindow, allocate, scale_of

NOW = datetime(2026, 3, 4, 9, 0, tzinfo=UTC)
BAKING = [
    "How long does the sourdough starter need before I can bake bread?",
    "The sourdough starter smells sour, is the bread ruined?",
    "What flour do I take for the bread and the sourdough starter?",
    "The bread is flat, was the sourdough starter too young?",
]
NETWORK = [
    "The router drops the network every hour, where is its log?",
    "The log of the router says that the network lease expired.",
    "Can the router renew the network lease earlier?",
    "The router keeps the network lease now, and the log is quiet.",
]


def fed(texts: list[str], size: int = 2) -> list[Boundary]:
    window = TopicWindow(size, 0.06)
    found = [window.add(Interaction.of("", NOW + timedelta(minutes=at), text)) for at, text in enumerate(texts)]
    return [boundary for boundary in found if boundary]


def test_one_subject_has_no_boundary_nor_has_what_is_too_short() -> None:
    assert fed(BAKING) == []
    assert fed([BAKING[0], NETWORK[0], NETWORK[1]]) == []
    assert fed(["", "hm", "!", "and the of"] * 5) == []


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("The password: hunter2!x", "hunter2"),
        ("Key eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U", "eyJ"),
        ('<memory-context nonce="a1">plugh</memory-context> Trains are late.', "plugh"),
    ],
)
def test_no_secret_and_nothing_that_memory_gave_becomes_a_keyword(told: str, kept: str) -> None:
    [boundary] = fed([BAKING[0], told], size=1)
    assert not [word for word in boundary.about if kept in word]
    assert not [word for word in Interaction.of("", NOW, told).words.values() if kept in word]


@given(st.lists(st.text(max_size=80), max_size=40), st.integers(1, 5))
def test_a_window_is_bounded_and_boundaries_go_forward(texts: list[str], size: int) -> None:
    window, before = TopicWindow(size, 0.5), NOW - timedelta(1)
    for number, text in enumerate(texts):
        boundary = window.add(Interaction.of("", NOW + timedelta(seconds=number), text))
        assert len(window.interactions) <= 2 * size
        if boundary:
            assert boundary.at > before
            before = boundary.at


@pytest.mark.parametrize(
    ("minutes", "uses", "scale"),
    [
        (0, 0, "immediate"), (5, 0, "immediate"), (5.01, 0, "task"), (30, 1, "task"), (31, 0, "session"),
        (120, 0, "session"), (121, 0, "project"), (1e6, 0, "project"), (-60, 0, "immediate"), (0, 1, "immediate"),
        (0, 2, "task"), (0, 4, "session"), (0, 8, "project"), (10, 2, "session"), (1e6, 10**6, "project"),
    ],
)  # fmt: skip
def test_the_scale_is_the_age_and_use_promotes(minutes: float, uses: int, scale: Scale) -> None:
    assert scale_of(NOW - timedelta(minutes=minutes), NOW, uses=uses) == scale


def test_what_lies_before_the_last_boundary_of_its_session_is_of_an_earlier_episode() -> None:
    made, episode = NOW - timedelta(minutes=2), NOW - timedelta(minutes=1)
    assert scale_of(made, NOW, episode=episode, own=True) == "session"
    assert scale_of(made, NOW, episode=episode, own=False) == "immediate"
    assert scale_of(NOW, NOW, episode=episode, own=True) == "immediate"


NAMES: dict[str, Scale] = {scale[0]: scale for scale in SCALES}


@pytest.mark.parametrize(
    ("scales", "scores", "chosen"),
    [
        ("ppppp", (0.9, 0.8, 0.7, 0.6, 0.5), [0, 1, 2, 3, 4]),
        ("pppppi", (0.9, 0.8, 0.7, 0.6, 0.5, 0.49), [0, 1, 2, 3, 5]),
        ("pppppi", (0.9, 0.8, 0.7, 0.6, 0.5, 0.47), [0, 1, 2, 3, 4]), ("pppppii", (0.5,) * 7, [0, 1, 2, 3, 5]),
        ("ppppptttis", (0.5,) * 10, [0, 5, 6, 8, 9]), ("ittsp", (0.5, 0.4, 0.3, 0.2, 0.1), [0, 1, 2, 3, 4]),
        ("iipppts", (0.9, 0.899, 0.898, 0.897, 0.896, 0.895, 0.894), [0, 1, 2, 5, 6]), ("", (), []),
    ],
)  # fmt: skip
def test_a_free_place_is_a_tie_break(scales: str, scores: tuple[float, ...], chosen: list[int]) -> None:
    rows = [(score, NAMES[letter]) for letter, score in zip(scales, scores, strict=True)]
    found = allocate(rows, 5)
    assert sorted(found) == chosen
    assert found == sorted(found, key=lambda at: -scores[at]), "best first"

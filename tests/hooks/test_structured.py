"""JSON out of replies: whatever a model wrote, what comes back are objects, and nothing is raised."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatbot.hooks.extraction import facts
from chatbot.hooks.extraction.facts import decisions_in, parse_facts, parts_of
from chatbot.hooks.extraction.structured import without_fence
from chatbot.hooks.summarize import parse_summary
from tests.servers.extraction_replies import FACT, LOCKER, REPLIES

BOTH = [FACT["content"], LOCKER["content"]]

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
tables = st.dictionaries(
    st.sampled_from(["content", "subject", "category", "type", "visibility", "fact", "action", "memory"]) | st.text(),
    values | st.sampled_from([*facts.FACT_TYPES, *facts.ACTIONS]),
    max_size=6,
)
wrapped = st.builds(
    lambda before, value, after, cut: (before + json.dumps(value) + after)[:cut],
    st.sampled_from(["", "```json\n", "Sure [1]: ", "<think>[", "{", "[", "\x00"]),
    st.lists(tables, max_size=6) | st.fixed_dictionaries({"facts": values, "decisions": st.lists(tables)}) | values,
    st.sampled_from(["", "\n```", " and so on ]", "}", "]"]),
    st.integers(0, 400),
)
replies = wrapped | st.text(max_size=300) | st.sampled_from(sorted(REPLIES.values()))


FOUND = dict.fromkeys(("valid", "list", "fenced", "chatty", "truncated", "commas", "fenced commas"), BOTH)
FOUND |= {"one": BOTH[:1], "orders": [], "invisible": ["Sam lives in Porto", "Sam plays chess on Mondays"]}


@pytest.mark.parametrize(
    "name",
    [*FOUND, *("nothing", "blank", "prose", "broken", "number", "null", "deep", "objects", "braces", "digits", "long")],
)
def test_facts_are_found_however_they_are_wrapped_and_none_where_there_are_none(name: str) -> None:
    found = parse_facts(REPLIES[name])
    assert [fact.content for fact in found.facts] == FOUND.get(name, [])
    assert len(found.dropped) == (4 if name == "orders" else 0)


def test_what_has_the_wrong_type_is_left_out_an_unknown_type_is_a_note_and_a_repetition_is_no_fact() -> None:
    [fact] = parse_facts(REPLIES["types"]).facts
    assert (fact.content, fact.subject, fact.category, fact.type) == ("Sam plays chess on Mondays", "", "", "note")
    assert len(parse_facts(json.dumps([FACT, FACT | {"content": " sam LIVES  in Porto"}])).facts) == 1


def test_a_summary_loses_its_fence() -> None:
    assert without_fence("\n```\n- one\n- two\n```") == "- one\n- two"
    assert without_fence("- one ```x``` two") == "- one ```x``` two"


@given(replies)
def test_what_is_believed_is_a_fact_within_bounds(reply: str) -> None:
    extracted = parse_facts(reply)
    assert len(extracted.facts) <= facts.MOST_FACTS
    for fact in extracted.facts:
        assert 0 < len(fact.content) <= facts.LONGEST_FACT
        assert fact.type in facts.FACT_TYPES
        for text in (fact.content, fact.subject, fact.category):
            assert isinstance(text, str)
            assert text == " ".join(text.split())
            text.encode()


answers: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "fact": st.integers(-1, 5) | st.booleans() | st.floats(0, 4) | st.sampled_from(["0", None, [], 10**30]),
        "action": st.sampled_from([*facts.ACTIONS, "add", "PURGE", "", None, 1, ["UPDATE"], {}]),
        "memory": st.integers(-1, 7) | st.booleans() | st.floats(0, 4) | st.sampled_from(["0", None, {}, [1]]),
    }
)


@given(st.lists(answers, max_size=8), st.lists(st.frozensets(st.integers(0, 5)), max_size=5))
def test_forged_or_repeated_answers_change_nothing(listed: list[dict[str, Any]], allowed: list[frozenset[int]]) -> None:
    decisions = decisions_in(json.dumps({"decisions": listed}), allowed)
    assert len(decisions) == len(allowed)
    for decision, own in zip(decisions, allowed, strict=True):
        assert (decision.memory is None) == (decision.action == "ADD")
        assert decision.memory is None or decision.memory in own
    changed = [each.memory for each in decisions if each.action in {"UPDATE", "DELETE"}]
    assert len(changed) == len(set(changed))


def test_a_fact_that_is_known_is_not_added_because_others_contradict_each_other() -> None:
    listed = [{"fact": n, "action": action, "memory": 0} for n, action in enumerate(("UPDATE", "DELETE", "NONE"))]
    decisions = decisions_in(json.dumps({"decisions": listed}), [{0}] * 3)
    assert [each.action for each in decisions] == ["ADD", "ADD", "NONE"]


def test_a_long_text_is_split_between_paragraphs_rather_than_lines() -> None:
    text = "\n\n".join(["a" * 5_000, "b" * 2_000 + "\n" + "c" * 3_000])
    assert list(parts_of(text)) == text.split("\n\n")


@given(replies)
def test_a_summary_is_bounded_or_none(reply: str) -> None:
    summary = parse_summary(reply)
    if summary is not None:
        assert summary.request or summary.outcome
        assert max(map(len, (summary.request, summary.outcome, *summary.decisions, *summary.open_items))) <= 300

"""The forms of public sets that the benchmarks read, and the end-to-end benchmark on a scripted model."""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from chatbot.models.model import Price
from chatbot.models.scripted import ScriptedModel

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import qa
import quality
from forms import Case, Query, cases

EXCHANGE = [{"role": "user", "content": "I moved to Lisbon."}, {"role": "assistant", "content": "Lovely."}]


def written(path: Path, held: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(held), encoding="utf-8")
    return path


def locomo(folder: Path) -> Path:
    turns = [
        {"dia_id": "D1:1", "speaker": "Ann", "text": "I moved to Lisbon."},
        {"dia_id": "D1:2", "speaker": "Bob", "text": "My kayak is green."},
    ]
    talk = {"session_1": turns, "session_1_date_time": "1:56 pm on 8 May, 2023"}
    asked = [
        {"question": "Where does Ann live?", "answer": "Lisbon", "evidence": ["D1:1"], "category": 4},
        {"question": "What colour is the kayak?", "answer": "green", "evidence": ["D1:2"], "category": 4},
        {"question": "Who is Zed?", "evidence": [], "category": 5},
    ]
    return written(folder / "locomo.json", [{"sample_id": "c1", "conversation": talk, "qa": asked}])


def long_mem_eval(folder: Path) -> Path:
    return written(
        folder / "lme.json",
        [
            {
                "question_id": "q1_abs",
                "question_type": "knowledge-update",
                "question": "Where do I live?",
                "answer": "Lisbon",
                "question_date": "2023/06/20 (Tue) 02:21",
                "haystack_dates": ["2023/05/21 (Sun) 02:21", "2023/05/20 (Sat) 02:21"],
                "haystack_sessions": [
                    [{**EXCHANGE[0], "has_answer": True}, EXCHANGE[1]],
                    [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}],
                ],
            }
        ],
    )


def beam(folder: Path) -> Path:
    turns = [[{**each, "id": number} for number, each in enumerate(EXCHANGE)]]
    turns[0][0]["time_anchor"] = "March-15-2024"
    written(folder / "100K" / "1" / "chat.json", [{"batch_number": 1, "turns": turns}])
    asked = {"knowledge_update": [{"question": "Where do I live?", "answer": "Lisbon", "rubric": ["Lisbon"],
                                   "source_chat_ids": {"updated_info": [1]}}]}  # fmt: skip
    written(folder / "100K" / "1" / "probing_questions" / "probing_questions.json", asked)
    return folder / "100K"


def persona_mem(folder: Path) -> Path:
    turns = [{"role": "system", "content": "You are a bot"}, *EXCHANGE]
    (folder / "shared_contexts_32k.jsonl").write_text(json.dumps({"c": turns}) + "\n", encoding="utf-8")
    path = folder / "questions_32k.csv"
    row = {
        "question_type": "recall",
        "user_question_or_message": "Where do I live?",
        "correct_answer": "(b)",
        "all_options": "['(a) Rome', '(b) Lisbon']",
        "shared_context_id": "c",
        "end_index_in_shared_context": "3",
    }
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow(row)
    return path


@pytest.mark.parametrize("made", [locomo, long_mem_eval, beam, persona_mem], ids=lambda made: str(made.__name__))
def test_each_form_tells_what_was_said_and_what_is_asked(made: Any, tmp_path: Path) -> None:
    [case] = cases(made(tmp_path))
    query = case.queries[0]
    evidence = {case.docs[number].user for number in query.gold}
    assert any("I moved to Lisbon." in doc.user for doc in case.docs)
    assert all("I moved to Lisbon." in each for each in evidence)
    assert bool(evidence) is (made is not persona_mem)
    assert query.answer == ("b" if made is persona_mem else "Lisbon")
    assert query.is_unanswerable is (made is long_mem_eval)
    assert [doc.at for doc in case.docs] == sorted(doc.at for doc in case.docs)
    assert case.now > case.docs[-1].at


def test_a_form_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="unknown form"):
        list(cases(written(tmp_path / "x.json", [{"what": 1}])))


async def fills_of_evidence(case: Case, _: Path) -> tuple[dict[str, qa.Fill], Any]:
    """Contexts without a memory, which the other tests of recall are about."""

    async def oracle(query: Any, _budget: int) -> str:
        return "\n".join(case.docs[number].text for number in sorted(query.gold))

    async def close() -> None:
        pass

    return dict.fromkeys(qa.WAYS, oracle), close


async def test_a_run_goes_on_where_it_broke_off_is_judged_anew_and_keeps_to_its_cap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qa, "fills", fills_of_evidence)
    asked = [str(locomo(tmp_path)), "--out", str(tmp_path / "run"), "--ways", "oracle", "--budgets", "100"]
    model = ScriptedModel(["In Lisbon.", "Red."], price=Price(0.001, 0.001))
    judge = ScriptedModel(["Yes.", "No."])
    run = await qa.work(qa.parsed([*asked, "--cap-usd", "0.1"]), model, judge)
    assert len(run.answers) == 1, "the second call could pass the cap"
    run = await qa.work(qa.parsed([*asked, "--cap-usd", "9"]), model, judge)
    assert [each["right"] for each in run.verdicts.values()] == [True, False]
    assert (len(model.prompts), len(judge.prompts)) == (2, 2)
    [first, second] = run.answers.values()
    assert "I moved to Lisbon." in first["prompt"]
    assert second["context_tokens"] > 0
    assert "0.500" in qa.report(run)
    again = await qa.work(qa.parsed([*asked, "--rejudge"]), model, None)
    assert [each["right"] for each in again.verdicts.values()] == [True, False]
    assert {each["judge"] for each in again.verdicts.values()} == {"words"}
    assert len(model.prompts) == 2
    lines = (tmp_path / "run" / "verdicts.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 4, "what was judged before is kept"


def test_the_sets_that_come_with_the_benchmarks_ask_for_what_was_told() -> None:
    sets = dict(quality.own_sets([], notes_of_one_form=0))
    sizes = {name: (len(case.docs), len(case.queries)) for name, case in sets.items()}
    assert sizes.pop("chinese") == (80, 40)
    assert set(sizes.values()) == {(60, 60), (40, 40)}
    for case in sets.values():
        assert all(doc.user for doc in case.docs)
        assert all(query.texts[-1].endswith(("?", "？")) and len(query.gold) == 1 for query in case.queries)
    assert {len(query.texts) for query in sets["everyday, in a chat"].queries} == {3}
    assert [len(set(questions)) for questions in quality.nonsense().values()] == [100, 50]


def test_each_half_of_a_set_is_reported_apart() -> None:
    score = quality.Score()
    for half, found in ((0, [3]), (0, [1, 3]), (1, [7])):
        score.add(Query(["?"], frozenset({3})), found, half)
    assert "R@5  66.7 (100.0, 0.0)" in score.line()

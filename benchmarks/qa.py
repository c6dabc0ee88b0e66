# /// script
# requires-python = ">=3.11"
# dependencies = ["chatbot-runtime[embeddings]", "bm25s", "PyStemmer"]
#
# [tool.uv.sources]
# chatbot-runtime = { path = ".." }
# ///
"""Count the questions that a model answers right with a context from memory, and the tokens of that context.

    uv run benchmarks/qa.py locomo10.json --model openai/gpt-4o-mini --judge openai/gpt-4o --cap-usd 5 --out runs/locomo
    uv run benchmarks/qa.py longmemeval_s.json --budgets 1000,4000,16000,36000 --ways ours,bm25s,oracle --questions 100
    uv run benchmarks/qa.py BEAM/chats/100K --model local/smollm2-135m --judge words --questions 20
    uv run benchmarks/qa.py locomo10.json --rejudge --judge anthropic/claude-sonnet-4-5 --out runs/locomo

A set may have any form of `set_readers.py`. Models are LiteLLM names; keys come from the environment, as for the
chat. The ways to fill the context:

    none      nothing
    last      the last docs that fit
    full      all docs, as far as they fit into the model's window
    bm25s     the docs that bm25s finds
    oracle    the evidence that the set names
    ours      the memory block of this product, by default settings except its size

All ways but `none` and `full` are tried with every budget of context tokens. The folder `--out` gets `answers.jsonl`
(context, prompt, reply, tokens and cost of each question) and `verdicts.jsonl` (the judge's prompt and reply). What is
there is not asked again, so an interrupted run can be continued. `--rejudge` judges all answers again. Every call is on
the bill in that folder (`usage.jsonl`), and none is made that could exceed `--cap-usd` in total.

Questions with options are judged by the letter, without a model. `--judge words` asks no model either: it requires
every word of the right answer in the response, which is cheap and strict. Tokens are the product's own estimate.
"""

import argparse
import asyncio
import json
import re
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from quality import AGENT, bm25s, remembered
from set_readers import Case, Doc, Query, cases

from chatbot.chat.calls import Calls
from chatbot.chat.conversation_memory import ConversationMemory
from chatbot.chat.ledger import Ledger, sum_of
from chatbot.config import AgentSettings, BudgetSettings, ModelSettings
from chatbot.errors import BudgetExceeded, ModelError
from chatbot.messages import Message
from chatbot.models import open_model
from chatbot.models.local_encoder import LocalEmbedder
from chatbot.models.model import Model, estimate_text
from chatbot.stores.text.analysis import terms

WAYS = ("none", "last", "full", "bm25s", "oracle", "ours")
BY_WORDS = "words"
UNLIMITED = ("none", "full")
"""Ways that no budget changes."""
_VERDICT_TOKENS = 100
_TOKENS_A_ROW = 60
"""Tokens for which a row more is asked of the memory, where the budget is large."""
_MOST_ROWS = 500
_ROOM = 500
"""Tokens of a prompt beside its context."""
_ASKED = """\
{context}Today is {now:%A, %d %B %Y}. {what} Answer the question as shortly as you can, by what stands above; where it \
does not tell, say that you do not know.

Question: {question}{options}"""
_JUDGED = """\
Is the response to the question right? It is right if it says the same as the right answer, in whatever words, form of \
date or detail beside it. {rule}

Question: {question}
Right answer: {answer}{rubric}
Response: {reply}

Answer yes or no only."""
Fill = Callable[[Query, int], Awaitable[str]]


@dataclass(frozen=True)
class Trial:
    """One question in one way, with one budget of context tokens; 0 for none."""

    id: str
    case: Case
    query: Query
    way: str
    budget: int

    @property
    def key(self) -> tuple[str, str, int]:
        return self.id, self.way, self.budget


@dataclass
class Run:
    """Answers and verdicts so far, in files that are only appended to."""

    folder: Path
    answers: dict[tuple[str, str, int], dict[str, Any]] = field(default_factory=dict)
    verdicts: dict[tuple[str, str, int], dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> "Run":
        """Read the records of a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        run = cls(folder)
        for name, rows in (("answers", run.answers), ("verdicts", run.verdicts)):
            path = folder / f"{name}.jsonl"
            for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
                row = json.loads(line)
                rows[row["id"], row["way"], row["budget"]] = row  # the last one counts
        return run

    def add(self, name: str, trial: Trial, **row: Any) -> None:
        """Append a line. Durable on return."""
        rows = self.answers if name == "answers" else self.verdicts
        rows[trial.key] = {"id": trial.id, "way": trial.way, "budget": trial.budget, **row}
        with (self.folder / f"{name}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(rows[trial.key], ensure_ascii=False) + "\n")


def trials(found: Iterable[Case], ways: Sequence[str], budgets: Sequence[int], questions: int) -> Iterator[Trial]:
    """Yield the trials of the first questions that have an answer, memory by memory."""
    left = questions
    for case in found:
        for number, query in enumerate(case.queries):
            if not (query.answer or query.rubric):
                continue
            if questions and not left:
                return
            left -= 1
            for way in ways:
                for budget in (0,) if way in UNLIMITED else budgets:
                    if way != "oracle" or query.gold:
                        yield Trial(f"{case.id}/{number}", case, query, way, budget)


async def answered(trial: Trial, fill: Fill, model: Model, calls: Calls, run: Run, *, most: int) -> None:
    """Ask the model, and record its answer with the whole prompt."""
    room = await calls.room(most) - _ROOM
    context = await fill(trial.query, min(trial.budget or room, room))
    prompt = _prompt(trial, context)
    reply = await calls.ask("answer", [Message("user", prompt)], reply_tokens=most)
    call = calls.made[-1]
    run.add(
        "answers",
        trial,
        category=trial.query.category,
        question=trial.query.texts[-1],
        answer=trial.query.answer,
        model=model.name,
        context_tokens=estimate_text(context),
        context=context,
        prompt=prompt,
        reply=reply,
        usage={"input": call.usage.input_tokens, "output": call.usage.output_tokens, "usd": call.usage.cost_usd},
    )


def _prompt(trial: Trial, context: str) -> str:
    options = "".join(f"\n{each}" for each in trial.query.options)
    what = "Choose the best answer by its letter alone." if options else "The question is that of the user."
    shown = f"{context}\n\n" if context else ""
    question = "\n".join(trial.query.texts)
    return _ASKED.format(context=shown, now=trial.case.now, what=what, question=question, options=options)


async def judged(trial: Trial, model: Model | None, calls: Calls, run: Run) -> None:
    """Judge an answer, and record the verdict: options by the letter, without a model by words."""
    reply = run.answers[trial.key]["reply"]
    if trial.query.options:
        letter = re.search(r"\b([a-z])\b", reply.lower())
        is_right = letter is not None and letter[1] == trial.query.answer
        run.add("verdicts", trial, judge="letter", prompt="", reply=letter[1] if letter else "", right=is_right)
        return
    if model is None:
        wanted = set(terms(trial.query.answer))
        is_right = bool(wanted) and wanted <= set(terms(reply))
        run.add("verdicts", trial, judge=BY_WORDS, prompt="", reply="", right=is_right)
        return
    rule = "There is no answer: it is right if it says so." if trial.query.is_unanswerable else ""
    rubric = "".join(f"\nIt has to say: {each}" for each in trial.query.rubric)
    prompt = _JUDGED.format(
        rule=rule, question=trial.query.texts[-1], answer=trial.query.answer, rubric=rubric, reply=reply
    )
    said = await calls.ask("answer", [Message("user", prompt)], reply_tokens=_VERDICT_TOKENS)
    is_right = bool(re.match(r"\W*yes\b", said, re.IGNORECASE))
    run.add("verdicts", trial, judge=model.name, prompt=prompt, reply=said, right=is_right)


async def fills(case: Case, folder: Path) -> tuple[dict[str, Fill], Callable[[], Awaitable[None]]]:
    """Return functions that fill the context, by way, and one that closes the memory."""
    memory, _ = await remembered(case, folder, encoder=LocalEmbedder() if LocalEmbedder.is_installed() else None)
    session = await memory.create_session(["basic_session", "observations"], AGENT)
    ranked = bm25s(case, depth=_MOST_ROWS)

    async def none(_query: Query, _budget: int) -> str:
        return ""

    async def last(_query: Query, budget: int) -> str:
        return _shown(reversed(case.docs), budget)

    async def lexical(query: Query, budget: int) -> str:
        return _shown([case.docs[number] for number in await ranked(query.texts)], budget)

    async def oracle(query: Query, budget: int) -> str:
        return _shown([case.docs[number] for number in sorted(query.gold)], budget)

    async def ours(query: Query, budget: int) -> str:
        usual = AgentSettings()
        rows = min(max(usual.recall_rows, budget // _TOKENS_A_ROW), _MOST_ROWS)
        turn = ConversationMemory.of(session, AgentSettings(recall_rows=rows, recall_tokens=budget))
        assert turn is not None
        return (await turn.recall(query.texts, since=None, most_tokens=budget)).text

    ways: dict[str, Fill] = {"none": none, "last": last, "full": last, "bm25s": lexical, "oracle": oracle, "ours": ours}
    return ways, memory.aclose


def _shown(docs: Iterable[Doc], budget: int) -> str:
    """Return the first of these docs that fit, in the order in which they were said."""
    kept: list[tuple[datetime, str]] = []
    for doc in docs:
        text = f"[{doc.at:%Y-%m-%d}] {doc.text}"
        budget -= estimate_text(f"{text}\n")
        if budget < 0:
            break
        kept.append((doc.at, text))
    return "\n".join(text for _, text in sorted(kept, key=lambda each: each[0]))


async def work(given: argparse.Namespace, model: Model, judge: Model | None) -> Run:
    """Ask and judge the remaining questions; stop if the next call could exceed the cap."""
    run = Run.of(given.out)
    ledger = Ledger(given.out)
    budget = await _budget(ledger, given.cap_usd)

    def calls(of: Model) -> Calls:
        return Calls(of, ledger, budget, reply_tokens=max(given.max_tokens, _VERDICT_TOKENS), timeout_s=given.timeout)

    asked = list(trials(cases(given.set), given.ways, given.budgets, given.questions))
    waiting = [] if given.rejudge else [trial for trial in asked if trial.key not in run.answers]
    try:
        for case in {trial.case.id: trial.case for trial in waiting}.values():
            with tempfile.TemporaryDirectory() as folder:
                ways, close = await fills(case, Path(folder))
                for trial in (each for each in waiting if each.case.id == case.id):
                    await answered(trial, ways[trial.way], model, calls(model), run, most=given.max_tokens)
                await close()
        for trial in asked:
            if trial.key in run.answers and (given.rejudge or trial.key not in run.verdicts):
                await judged(trial, judge, calls(judge or model), run)
    except (BudgetExceeded, ModelError) as error:
        print(f"stopped: {error}; run the same again to go on", file=sys.stderr)
    print(f"cost so far: ${sum_of((await ledger.by_session()).values()).cost_usd:.4f}")
    return run


async def _budget(ledger: Ledger, cap_usd: float) -> BudgetSettings:
    """Return today's limit that keeps all days together within the cap; 0 for none."""
    if not cap_usd:
        return BudgetSettings()
    [today] = (await ledger.by_day(1, datetime.now(UTC))).values()
    before = sum_of((await ledger.by_session()).values()).cost_usd - today.cost_usd
    if before >= cap_usd:
        raise SystemExit(f"${before:.2f} was spent on earlier days, which is the cap: raise --cap-usd")
    return BudgetSettings(day_usd=cap_usd - before)


def report(run: Run) -> str:
    """Return a line for each way and budget: questions, accuracy, context tokens, and right answers per 1,000 of these.

    "held" is the share of questions whose context has every word of the right answer.
    """
    rows: defaultdict[tuple[str, int], list[tuple[bool, bool, int]]] = defaultdict(list)
    for (each, way, budget), verdict in run.verdicts.items():
        asked = run.answers[each, way, budget]
        wanted = set(terms(asked["answer"]))
        is_told = bool(wanted) and wanted <= set(terms(asked["context"]))
        rows[way, budget].append((verdict["right"], is_told, asked["context_tokens"]))
    lines = [f"{'way':8} {'budget':>7} {'asked':>6} {'right':>6} {'held':>6} {'tokens':>8} {'right per 1k tokens':>20}"]
    for (way, budget), found in sorted(rows.items(), key=lambda each: (each[0][1], WAYS.index(each[0][0]))):
        right, held, tokens = (statistics.fmean(each) for each in zip(*found, strict=True))
        per_token = f"{1000 * right / tokens:.3f}" if tokens else "–"
        lines.append(
            f"{way:8} {budget or '–':>7} {len(found):6} {right:6.3f} {held:6.3f} {tokens:8.0f} {per_token:>20}"
        )
    return "\n".join(lines)


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", type=Path, help="a set in any form that set_readers.py reads")
    parser.add_argument("--model", default="local/smollm2-135m", help="answers (default: the embedded model)")
    parser.add_argument("--judge", default="", help="judges (default: the model that answers); words: by its words")
    parser.add_argument("--out", type=Path, default=Path("qa-run"), help="folder of answers, verdicts and the bill")
    parser.add_argument("--ways", type=lambda text: text.split(","), default=list(WAYS), help=",".join(WAYS))
    parser.add_argument(
        "--budgets", type=lambda text: [*map(int, text.split(","))], default=[1000, 4000], help="context tokens"
    )
    parser.add_argument(
        "--max-tokens", type=int, default=60, help="most tokens of an answer: a tiny model finds no end"
    )
    parser.add_argument("--questions", type=int, default=0, help="how many (0: all)")
    parser.add_argument("--cap-usd", type=float, default=1.0, help="most that all calls may cost (0: no limit)")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for one reply")
    parser.add_argument("--rejudge", action="store_true", help="judge all answers anew, and ask for none")
    given = parser.parse_args(arguments)
    if unknown := set(given.ways) - set(WAYS):
        parser.error(f"unknown ways: {', '.join(sorted(unknown))}; known: {', '.join(WAYS)}")
    return given


def main() -> None:
    given = parsed()
    model = open_model(ModelSettings(name=given.model, temperature=0.0))
    named = given.judge or given.model
    judge = None if named == BY_WORDS else open_model(ModelSettings(name=named, temperature=0.0))
    print(report(asyncio.run(work(given, model, judge))))


if __name__ == "__main__":
    main()

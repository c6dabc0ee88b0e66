# /// script
# requires-python = ">=3.11"
# dependencies = ["chatbot-runtime[embeddings,local]", "bm25s", "PyStemmer"]
#
# [tool.uv.sources]
# chatbot-runtime = { path = ".." }
# ///
"""Count the questions about a year that a real model answers right from the product's own prompts.

    uv run benchmarks/answers.py --model local/DIR/model.gguf                  # 20 questions of each of three lives
    uv run benchmarks/answers.py --model ollama_chat/qwen3 --set benchmarks/sets/lives/69.txt --questions 40
    uv run benchmarks/answers.py --model local/DIR/model.gguf --way "the product" --way tools --way "tenth turn"
    uv run benchmarks/answers.py --model local/DIR/model.gguf --replies BEAM/chats/100K    # the bot replied at length

A year is run as in `life.py`, with all hooks. With `--replies`, the bot's replies are taken from that set: those of 150
words or more, cut to 300. Then the model gets the same questions at temperature 0 in these ways:

    the product     a real turn, each in a session of its own
    bm25            the five rows that bm25 finds, as plain dated lines
    the right rows  only the rows that hold the answer or an older state of it
    no memory       nothing
    tools           a real turn in which the model may use the memory tools
    tenth turn      real turns of one conversation; those before the tenth do not count

An answer is right if it has the right words, or denies what was denied. It is a repeat if it is an earlier reply, or
shares eight words in a row with one or with the notice about memory. Tokens are those of all prompts of a turn, seconds
those of the whole answer; both are medians.
"""

import argparse
import asyncio
import json
import re
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from clocked_runtime import Voice, runtime_in
from life import BEGIN, DAYS, REPLIES, SETS, Fact, read_life, sample, year
from msgspec.structs import replace
from quality import bm25s
from set_readers import Case, Doc, cases

from chatbot.chat.memory_block import system_notice
from chatbot.config import ModelSettings
from chatbot.messages import CallOptions, Delta, Finished, Message, TextDelta, ToolCallDelta, ToolSpec, without_blocks
from chatbot.models import Model, open_model
from chatbot.runtime import Options, Runtime
from chatbot.stores.observation import Observation

PERSONA = "You are Ada."
LONGEST = 80
"""Tokens of an answer."""
USUAL_WAYS = ("the product", "bm25", "the right rows", "no memory")
BY_TURNS = ("the product", "tools", "tenth turn")
WAYS = (*USUAL_WAYS, *BY_TURNS[1:])
_BEFORE = 9
"""Turns of a conversation that do not count."""
_REPEATED = 8
"""Words in a row that make a repeat."""
_LEAST_WORDS, _MOST_WORDS = 150, 300
_BY_WORDS = 5
_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Answer:
    """An answer, and what it cost."""

    fact: Fact
    text: str
    tokens: int
    seconds: float
    notes: str = ""
    calls: int = 0
    """Calls of tools."""
    is_repeat: bool = False

    @property
    def is_right(self) -> bool:
        """Return whether it has the right words, from the start of a word, or says no to something denied."""
        plain_text = _plainly(self.text)
        is_no = self.fact.kind == "denied" and re.match(r"no\b", plain_text) is not None
        return is_no or any(re.search(rf"(?<!\w){re.escape(words)}", plain_text) for words in self.fact.right)


class ToolsInText(Model):
    """A model that takes no tools, with the tools in its system prompt as Qwen's chat template lists them."""

    def __init__(self, model: Model) -> None:
        self._model, self.name = model, model.name

    async def context_window(self) -> int:
        """Return the window of the model."""
        return await self._model.context_window()

    async def count_tokens(self, messages: Sequence[Message], tools: Sequence[ToolSpec] = ()) -> int:
        """Count the tokens, including those of the listed tools."""
        return await self._model.count_tokens(_listing(messages, tools))

    async def stream(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        max_output_tokens: int | None = None,
        json_schema: Mapping[str, Any] | None = None,
        options: CallOptions | None = None,
    ) -> AsyncGenerator[Delta, None]:
        """Yield the whole reply at once, or the calls in it."""
        asked = _listing(messages, tools)
        text, end = "", None
        stream = self._model.stream(
            asked, max_output_tokens=max_output_tokens, json_schema=json_schema, options=options
        )
        async for delta in stream:
            text += delta.text if isinstance(delta, TextDelta) else ""
            end = delta if isinstance(delta, Finished) else end
        assert end is not None
        calls = [call for written in _CALL.findall(text) if (call := _call(written))] if tools else []
        for at, (name, arguments) in enumerate(calls):
            yield ToolCallDelta(at, f"call_{time.monotonic_ns()}_{at}", name, arguments)
        if not calls:
            yield TextDelta(text)
        yield Finished("tool_calls" if calls else end.reason, end.usage, end.model)


def _listing(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[Message]:
    """Return the messages with the tools in the first one."""
    if not tools:
        return list(messages)
    first, *rest = messages
    listed = "\n".join(json.dumps(tool.as_openai()) for tool in tools)
    text = (
        f"{first.content}\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        f"You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n{listed}\n</tools>\n\n"
        "For each function call, return a json object with function name and arguments within <tool_call></tool_call> "
        'XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
    )
    return [replace(first, content=text), *rest]


def _call(written: str) -> tuple[str, str] | None:
    """Return the name and the arguments of a call; None if it is not one."""
    try:
        call = json.loads(written)
        return str(call["name"]), json.dumps(call.get("arguments", {}))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def plain(rows: Sequence[Observation], question: str, now: datetime) -> list[Message]:
    """Return a prompt with these rows as plain dated lines, oldest first."""
    lines = [f"- {row.created_at.day} {row.created_at:%b %Y}: {row.user_text}" for row in rows]
    system = f"{PERSONA}\n\n{system_notice(now)}" if rows else PERSONA
    noted = "<memory-context>\n" + "\n".join(lines) + "\n</memory-context>\n\n" if rows else ""
    return [Message("system", system), Message("user", noted + question)]


async def ask(model: Model, messages: Sequence[Message], fact: Fact) -> Answer:
    """Ask the model once."""
    begun, text = time.monotonic(), ""
    async for delta in model.stream(messages, max_output_tokens=LONGEST):
        text += delta.text if isinstance(delta, TextDelta) else ""
    return Answer(fact, text, await model.count_tokens(messages), time.monotonic() - begun)


async def by_turns(
    runtime: Runtime, asked: Sequence[Fact], replies: Sequence[str], clock: list[datetime], *, in_one: bool
) -> list[Answer]:
    """Ask in turns, as a person does, each in a session of its own or all `in_one`."""
    answers: list[Answer] = []
    session = None
    for fact in asked:
        clock[0] += timedelta(minutes=3)
        session = session if session and in_one else await runtime.new_session()
        assert session is not None
        chat = runtime.chat(session)
        prompt, _ = await chat.dry_run(fact.question)
        message = str(prompt.messages[-1].content)
        begun = time.monotonic()
        receipt = await chat.turn(fact.question)
        seconds = time.monotonic() - begun
        if not in_one:
            await runtime.end_session(session)
        earlier = [*replies, *(each.text for each in answers if in_one), system_notice(clock[0])]
        tokens = sum(call.usage.input_tokens for call in receipt.calls if call.purpose == "chat")
        notes = message.removesuffix(without_blocks(message)).strip()
        repeats = _is_repeat(receipt.reply, earlier)
        answers.append(Answer(fact, receipt.reply, tokens, seconds, notes, len(receipt.tools), repeats))
    return answers


def _plainly(text: str) -> str:
    return " ".join(text.lower().split())


def _is_repeat(text: str, earlier: Sequence[str]) -> bool:
    """Return whether a text is one of the earlier ones, or shares some words in a row with one."""
    said, words = [_plainly(each) for each in earlier], _plainly(text).split()
    parts = [" ".join(words[at : at + _REPEATED]) for at in range(len(words) - _REPEATED + 1)]
    return _plainly(text) in said or any(part in each for part in parts for each in said)


async def measure(
    path: Path, name: str, *, questions: int, others: int, ways: Sequence[str], replies: Sequence[str]
) -> dict[str, list[Answer]]:
    """Run a year, and ask at its end, in each way on a copy of its own."""
    life, voice, clock = read_life(path), Voice(), [BEGIN]
    asked, answers = sample(life.facts, questions), dict[str, list[Answer]]()
    settings = ModelSettings(name=name, temperature=0.0, max_output_tokens=LONGEST, timeout_s=600)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "year")
        async with runtime_in(home, voice, lambda: clock[0]) as runtime:
            await year(runtime, voice, life.sessions(others), clock, replies)
            clock[0] = BEGIN + timedelta(days=DAYS + 1)
            await runtime.memory.memory("chat").embed_memories()
            rows = [row for row in await runtime.memory.memory("chat").every() if row.type == "exchange"][::-1]
        for way in ways:
            async with open_model(settings) as model:
                if way in BY_TURNS:
                    config = _copied(home, Path(folder, way), with_tools=way == "tools")
                    calling = model if way != "tools" or model.supports_tools else ToolsInText(model)
                    options = Options(config=config, identity="ada")
                    async with Runtime(options, model=calling, clock=lambda: clock[0]) as asking:
                        await asking.memory.memory(
                            "chat"
                        ).embed_memories()  # what is cached belongs to the folder copied
                        answers[way] = await by_turns(asking, asked, replies, clock, in_one=way == "tenth turn")
                else:
                    shown = await _shown(way, asked, rows)
                    prompts = [plain(each, fact.question, clock[0]) for each, fact in zip(shown, asked, strict=True)]
                    answers[way] = [await ask(model, *each) for each in zip(prompts, asked, strict=True)]
    return answers


def _copied(home: Path, to: Path, *, with_tools: bool) -> Path:
    """Copy a year, so that no way finds the questions of another; return the path of the copy's settings."""
    shutil.copytree(home, to)
    config = to / "config.toml"
    text = config.read_text(encoding="utf-8").replace(str(home), str(to))
    config.write_text(text.replace("tools = []", 'tools = ["memory"]') if with_tools else text, encoding="utf-8")
    return config


async def _shown(way: str, asked: Sequence[Fact], rows: Sequence[Observation]) -> list[list[Observation]]:
    """Return the rows for each question."""
    if way == "the right rows":
        return [[row for row in rows if row.user_text in {fact.first, fact.later}] for fact in asked]
    if way == "no memory":
        return [[] for _ in asked]
    find = bm25s(Case(BEGIN, [Doc(None, row.created_at, row.user_text) for row in rows], []), _BY_WORDS)
    return [[rows[at] for at in sorted(await find([fact.question]))] for fact in asked]


def long_replies(path: Path) -> list[str]:
    """Return the long replies of a set, cut to their first words."""
    said = [doc.reply.split() for case in cases(path) for doc in case.docs]
    return [" ".join(words[:_MOST_WORDS]) for words in said if len(words) >= _LEAST_WORDS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a model's name, such as local/DIR/model.gguf")
    parser.add_argument("--set", type=Path, action="append", help="a file of facts; can be repeated")
    parser.add_argument("--questions", type=int, default=20, help="questions of each set")
    parser.add_argument("--others", type=int, default=200, help="number of other turns")
    parser.add_argument("--way", choices=WAYS, action="append", help="a way to ask; can be repeated")
    parser.add_argument("--replies", type=Path, help="a set whose long replies the bot gives in the year")
    parser.add_argument("--show", action="store_true", help="print notes and answers")
    given = parser.parse_args()
    sets = given.set or [SETS / "lives" / f"{number}.txt" for number in (69, 70, 75)]
    ways, replies = given.way or USUAL_WAYS, long_replies(given.replies) if given.replies else REPLIES
    together: dict[str, list[Answer]] = defaultdict(list)
    for path in sets:
        life = measure(path, given.model, questions=given.questions, others=given.others, ways=ways, replies=replies)
        found = asyncio.run(life)
        for way, answers in found.items():
            counted = answers[_BEFORE:] if way == "tenth turn" else answers
            together[way] += counted
            print(f"{path.stem:14} {summary(way, counted)}", flush=True)
            for each in counted if given.show else ():
                fault = "" if each.is_right else "WRONG "
                print(f"\n{fault}{each.fact.question}\n{each.notes}\n=> {each.text!r}", flush=True)
    for way, answers in together.items():
        print(f"{'together':14} {summary(way, answers)}")


def summary(way: str, answers: Sequence[Answer]) -> str:
    """Return a line about one way to ask."""
    tokens = statistics.median(each.tokens for each in answers)
    seconds = statistics.median(each.seconds for each in answers)
    right = sum(each.is_right for each in answers)
    repeats = sum(each.is_repeat for each in answers)
    calls = sum(each.calls for each in answers)
    return (
        f"{way:16} {right:3} of {len(answers):3} right, {repeats} repeats, {calls} calls of tools, "
        f"{tokens:5.0f} tokens, {seconds:5.1f} s"
    )


if __name__ == "__main__":
    main()

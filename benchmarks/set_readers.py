"""Readers of sets of conversations and questions, each in the form of its original files.

    LoCoMo        a JSON list with `conversation` and `qa`; a turn is one remembered thing
    LongMemEval   a JSON list with `haystack_sessions`; one memory for each question
    BEAM          a folder with `chat.json` and `probing_questions/probing_questions.json`, or a folder of such folders
    PersonaMem    `questions_*.csv`, with `shared_contexts_*.jsonl` beside it; it names the right option and no evidence
    common        a JSON list of `{id, now, docs, queries}`: docs `{id, session, at, user, asst | narrative}`, queries
                  `{texts, gold, cat}`, with an `answer` if they are to be answered

The sets are not part of this repository; their licences are their authors'.
"""

import ast
import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open", 4: "single"}
"""Categories of LoCoMo that have an answer."""
_ANSWERS = ("answer", "ideal_answer", "ideal_response", "ideal_summary", "expected_compliance")
"""Names that BEAM has for the right answer."""
_UNDATED = datetime(2025, 1, 1, 9, tzinfo=UTC)
"""When a conversation begins that has no dates."""


@dataclass(frozen=True)
class Doc:
    """One thing to remember."""

    session: int | None
    at: datetime
    user: str = ""
    reply: str = ""
    narrative: str = ""
    question: str = ""

    @property
    def text(self) -> str:
        return "\n".join(filter(None, (self.question, self.user, self.narrative, self.reply)))


@dataclass(frozen=True)
class Turn:
    """A turn of LoCoMo."""

    id: str
    session: int
    at: datetime
    speaker: str
    text: str


@dataclass(frozen=True)
class Query:
    """The last lines of a chat, the docs to be recalled for them, and the right answer."""

    texts: list[str]
    gold: frozenset[int] = frozenset()
    answer: str = ""
    rubric: tuple[str, ...] = ()
    """Points that an answer has to make, where they are given."""
    options: tuple[str, ...] = ()
    """Answers to choose from; `answer` is then the letter of the right one."""
    category: str = ""
    is_unanswerable: bool = False


@dataclass(frozen=True)
class Case:
    """One memory, and the questions to it."""

    now: datetime
    docs: list[Doc]
    queries: list[Query]
    id: str = ""


def cases(path: Path) -> Iterator[Case]:
    """Read a set in any of the forms. Raises `SystemExit` for another form."""
    if path.is_dir():
        yield from _beam(path)
        return
    if path.suffix == ".csv":
        yield from _persona_mem(path)
        return
    read = json.loads(path.read_text(encoding="utf-8"))
    first = read[0] if isinstance(read, list) and read else {}
    for key, reader in _READERS.items():
        if key in first:
            yield from (reader(each, number) for number, each in enumerate(read))
            return
    raise SystemExit(f"{path}: unknown form; known: LoCoMo, LongMemEval, BEAM, PersonaMem and the common form")


def _common(memory: Mapping[str, Any], number: int) -> Case:
    places = {doc["id"]: place for place, doc in enumerate(memory["docs"])}
    docs = [
        Doc(
            doc["session"],
            datetime.fromisoformat(doc["at"]),
            doc.get("user", ""),
            doc.get("asst", ""),
            doc.get("narrative", ""),
        )
        for doc in memory["docs"]
    ]
    queries = [
        Query(
            query["texts"],
            frozenset(places[each] for each in query["gold"] if each in places),
            answer=str(query.get("answer", "")),
            category=str(query.get("cat", "")),
        )
        for query in memory["queries"]
    ]
    return Case(datetime.fromisoformat(memory["now"]), docs, queries, str(memory.get("id", number)))


def _locomo(sample: Mapping[str, Any], number: int) -> Case:
    turns = list(conversation_turns(sample["conversation"]))
    places = {turn.id: place for place, turn in enumerate(turns)}
    docs = [Doc(turn.session, turn.at, f"{turn.speaker}: {turn.text}") for turn in turns]
    queries = [
        Query(
            [str(asked["question"])],
            frozenset(places[each] for each in _evidence(asked) if each in places),
            answer=str(asked.get("answer", "")),
            category=CATEGORIES[asked["category"]],
        )
        for asked in sample["qa"]
        if asked["category"] in CATEGORIES
    ]
    return Case(turns[-1].at + timedelta(days=1), docs, queries, str(sample.get("sample_id", number)))


def conversation_turns(talk: dict[str, Any]) -> Iterator[Turn]:
    """Yield the turns of a conversation, session by session."""
    numbers = [int(key.split("_")[1]) for key in talk if re.fullmatch(r"session_\d+", key)]
    for number in sorted(numbers):
        yield from _turns(talk, number)


def _turns(talk: dict[str, Any], number: int) -> Iterator[Turn]:
    begin = datetime.strptime(talk[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
    for at, said in enumerate(talk[f"session_{number}"]):
        caption = f" [shared {said['blip_caption']}]" if said.get("blip_caption") else ""
        yield Turn(said["dia_id"], number, begin + timedelta(seconds=10 * at), said["speaker"], said["text"] + caption)


def _evidence(asked: Mapping[str, Any]) -> list[str]:
    return re.findall(r"D\d+:\d+", " ".join(asked.get("evidence", [])))


def _long_mem_eval(asked: Mapping[str, Any], number: int) -> Case:
    docs: list[Doc] = []
    gold: set[int] = set()
    told = sorted(zip(map(_date, asked["haystack_dates"]), asked["haystack_sessions"], strict=True), key=lambda s: s[0])
    for session, (begin, turns) in enumerate(told):
        for user, reply, held in _paired(turns, lambda turn: turn.get("has_answer", False)):
            gold |= {len(docs)} if any(held) else set()
            docs.append(Doc(session, begin + timedelta(minutes=len(docs)), user, reply))
    query = Query(
        [asked["question"]],
        frozenset(gold),
        answer=str(asked["answer"]),
        category=asked["question_type"],
        is_unanswerable=str(asked["question_id"]).endswith("_abs"),
    )
    return Case(_date(asked["question_date"]), docs, [query], str(asked.get("question_id", number)))


def _date(written: str) -> datetime:
    """Return a time such as "2023/05/20 (Sat) 02:21"."""
    return datetime.strptime(re.sub(r"\s*\(\w+\)", "", written), "%Y/%m/%d %H:%M").replace(tzinfo=UTC)


def _beam(folder: Path) -> Iterator[Case]:
    chats = [folder / "chat.json"] if (folder / "chat.json").exists() else sorted(folder.rglob("chat.json"))
    if not chats:
        raise SystemExit(f"{folder}: no chat.json of BEAM is in it")
    for chat in chats:
        probing = chat.parent / "probing_questions" / "probing_questions.json"
        if probing.exists():
            batches, asked = (json.loads(path.read_text(encoding="utf-8")) for path in (chat, probing))
            yield _beam_chat(batches, asked, chat.parent.name)


def _beam_chat(batches: Sequence[Mapping[str, Any]], asked: Mapping[str, Any], name: str) -> Case:
    docs: list[Doc] = []
    places: dict[int, int] = {}
    at = _UNDATED
    for session, batch in enumerate(batches):
        turns = [turn for group in batch["turns"] for turn in group]
        anchors = [turn["time_anchor"] for turn in turns if turn.get("time_anchor")]
        if anchors:
            at = datetime.strptime(anchors[0], "%B-%d-%Y").replace(hour=9, tzinfo=UTC)
        for user, reply, ids in _paired(turns, lambda turn: turn["id"]):
            places |= dict.fromkeys(ids, len(docs))
            docs.append(Doc(session, at := at + timedelta(minutes=1), re.sub(r"\s*->->.*$", "", user), reply))
    queries = [_probe(kind, each, places) for kind, several in asked.items() for each in several]
    return Case(at + timedelta(days=1), docs, queries, name)


def _probe(kind: str, asked: Mapping[str, Any], places: Mapping[int, int]) -> Query:
    return Query(
        [asked["question"]],
        frozenset(places[each] for each in _numbers(asked.get("source_chat_ids", ())) if each in places),
        answer=next((str(asked[name]) for name in _ANSWERS if asked.get(name)), ""),
        rubric=tuple(map(str, asked.get("rubric", ()))),
        category=kind,
        is_unanswerable=kind == "abstention",
    )


def _numbers(held: object) -> Iterator[int]:
    """Yield the numbers in lists and mappings, however deep."""
    if isinstance(held, int):
        yield held
    elif isinstance(held, Mapping):
        yield from _numbers(list(held.values()))
    elif isinstance(held, Iterable) and not isinstance(held, str):
        for each in held:
            yield from _numbers(each)


def _persona_mem(path: Path) -> Iterator[Case]:
    beside = path.with_name(path.name.replace("questions", "shared_contexts")).with_suffix(".jsonl")
    contexts: dict[str, list[dict[str, str]]] = {}
    for line in beside.read_text(encoding="utf-8").splitlines():
        contexts |= json.loads(line)
    asked: dict[tuple[str, int], list[Query]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            place = row["shared_context_id"], int(row["end_index_in_shared_context"])
            asked.setdefault(place, []).append(_choice(row))
    for (context, end), queries in asked.items():
        docs = list(_sessions(contexts[context][:end]))
        if docs:
            yield Case(docs[-1].at + timedelta(days=1), docs, queries, f"{context[:12]}-{end}")


def _choice(row: Mapping[str, str]) -> Query:
    letter = re.search(r"[a-z]", row["correct_answer"].lower())
    return Query(
        [row["user_question_or_message"]],
        answer=letter[0] if letter else "",
        options=tuple(map(str, ast.literal_eval(row["all_options"]))),
        category=row["question_type"],
    )


def _sessions(turns: Sequence[Mapping[str, str]]) -> Iterator[Doc]:
    """Yield exchanges; a message of the system begins another session, a week later."""
    session, since = 0, 0
    parts: list[list[Mapping[str, str]]] = [[]]
    for turn in turns:
        if turn["role"] == "system":
            parts.append([])
        else:
            parts[-1].append({**turn, "content": re.sub(r"^(?:User|Assistant): ", "", turn["content"])})
    for session, part in enumerate(each for each in parts if each):
        for since, (user, reply, _) in enumerate(_paired(part, lambda _: None)):
            yield Doc(session, _UNDATED + timedelta(weeks=session, minutes=since), user, reply)


def _paired(
    turns: Sequence[Mapping[str, Any]], of: Callable[[Mapping[str, Any]], Any]
) -> Iterator[tuple[str, str, list[Any]]]:
    """Yield each message of the user with its reply, and the results of `of` for these turns."""
    user: list[str] = []
    reply: list[str] = []
    held: list[Any] = []
    for turn in turns:
        if turn["role"] == "user" and reply:
            yield "\n".join(user), "\n".join(reply), held
            user, reply, held = [], [], []
        (user if turn["role"] == "user" else reply).append(turn["content"])
        held.append(of(turn))
    if user or reply:
        yield "\n".join(user), "\n".join(reply), held


def with_evidence(case: Case) -> Case:
    """Return the case with only the queries that name their evidence."""
    return replace(case, queries=[query for query in case.queries if query.gold])


_READERS: dict[str, Callable[[Mapping[str, Any], int], Case]] = {
    "haystack_sessions": _long_mem_eval,
    "conversation": _locomo,
    "docs": _common,
}
"""How a memory is read, by a key that it has."""

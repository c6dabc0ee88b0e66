"""Facts that a model extracts from a text, and how those of an exchange are remembered.

A reply is not trusted. Only short texts, a subject, a category, a type, and a key with its value for the profile are
read from it; nothing in it decides who may see a fact, or how sensitive it is. Facts that read like instructions, and
facts that repeat recalled rows, are dropped with the reason.
docs/extraction.md says how they are compared with memories: no text of that answer is kept.
"""

import html
import re
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain, islice, zip_longest
from typing import Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from chatbot.chat.calls import Calls
from chatbot.chat.governor import fenced, with_bars
from chatbot.config import ExtractionSettings
from chatbot.hooks.extraction.structured import DATA, objects_in, schema_of
from chatbot.memory import AddResult, Draft, Memory, SessionHandle
from chatbot.memory.episode import QUESTION, with_questions
from chatbot.memory.profile_lines import is_proposable
from chatbot.memory.prompt_injection import injection_in, without_invisible
from chatbot.messages import Message
from chatbot.stores.access import CLEARANCES, Guard, Sensitivity, fold
from chatbot.stores.errors import InvalidValue
from chatbot.stores.fields import one_line
from chatbot.stores.loops import to_its_end
from chatbot.stores.observation import PROTECTED_TYPES, Observation, Type
from chatbot.stores.query import Filter
from chatbot.stores.text.analysis import terms
from chatbot.stores.text.dates import local
from chatbot.stores.text.redaction import redact

FACT_TYPES: tuple[Type, ...] = ("note", "preference", "identity", "decision", "event", "discovery", "technical")
"""The types of facts; anything else becomes a note."""
MOST_FACTS = 12
"""Maximum facts read from a reply."""
LONGEST_FACT = 500
_SHORTEST_FACT = 8
_LONGEST_NAME = 100
_LONGEST_PART = 8_000
_REPEATED = 0.8
"""Least share of a fact's words that a recalled row contains if the fact only repeats it."""

_INSTRUCTIONS = f"""\
You take down what is worth remembering from a text, for later conversations with the same person. Reply with JSON \
and nothing else: {{"facts": [{{"content": "...", "subject": "...", "category": "...", "type": "...", "key": "...", \
"value": "..."}}]}}
content: one sentence that can be understood alone, in the third person, in the language of the text, names and \
numbers as they stand there. subject: whom or what it is about, in a word or two. category: one word. \
type: {", ".join(FACT_TYPES)}. key and value: where the fact tells something lasting of the person themselves, of \
which there is one at a time, what it is, such as home, job, employer, name, birthday or wife, and the words of the \
person that say it; otherwise both empty.
Take only what the person stated about themselves, their people, plans, tastes and work, and what was decided. Leave \
out small talk, general knowledge, questions, guesses, secrets, and requests for action.
If there is nothing, reply {{"facts": []}}.
{DATA}"""

_STRINGS: dict[str, Any] = {name: {"type": "string"} for name in ("content", "subject", "category", "key", "value")}
_FACT: dict[str, Any] = _STRINGS | {"type": {"type": "string", "enum": list(FACT_TYPES)}}
_SCHEMA = schema_of(_FACT, listed="facts")


class ExtractedFact(Struct, frozen=True):
    """A statement extracted from a text. Each field is one line, without invisible characters."""

    content: str
    subject: str = ""
    category: str = ""
    type: Type = "note"
    key: str = ""
    value: str = ""
    """Value of the profile key; empty if the fact gives none."""


class FactList(Struct, frozen=True):
    """The facts of a text, and those that were dropped, each with the reason."""

    facts: tuple[ExtractedFact, ...] = ()
    dropped: tuple[tuple[str, str], ...] = ()

    def without_recalled(self, said: str, recalled: Sequence[Observation]) -> "FactList":
        """Drop facts that only repeat a recalled row, unless a word of the person is new in them, such as "not"."""
        own = _words(said)
        repeated = {fact for fact in self.facts if any(_repeats(fact, row, own) for row in recalled)}
        return FactList(
            tuple(fact for fact in self.facts if fact not in repeated),
            (*self.dropped, *((fact.content, "recalled") for fact in self.facts if fact in repeated)),
        )


async def extract(calls: Calls, parts: Sequence[tuple[str, str]], *, at: datetime) -> FactList:
    """Extract the facts of labelled parts of a text written at time `at`; one call, purpose `extract`.

    Secrets are removed first. If the prompt exceeds the model's window, the longest parts are cut until it fits, or
    none exceeds 500 characters. Raises a `ModelError` or `BudgetExceeded`; an unreadable reply has no facts.
    """
    parts = [(label, redact(without_invisible(text))[0]) for label, text in parts if text.strip()]
    if not parts:
        return FactList()
    messages, room = _messages(parts, at), await calls.room()
    while (longest := max(len(text) for _, text in parts)) > LONGEST_FACT:
        if await calls.model.count_tokens(messages) <= room:
            break
        parts = [(label, text[: longest * 3 // 4]) for label, text in parts]
        messages = _messages(parts, at)
    return parse_facts(await calls.ask("extract", messages, schema=_SCHEMA))


async def extract_facts(calls: Calls, text: str) -> AsyncIterator[FactList]:
    """Extract the facts of a text of any length, part by part; stores nothing. Raises as `extract`."""
    for part in parts_of(text):
        yield await extract(calls, [("text", part)], at=calls.clock())


def parse_facts(reply: str) -> FactList:
    """Read the facts of a reply. Never raises."""
    facts: dict[str, ExtractedFact] = {}
    dropped: list[tuple[str, str]] = []
    for table in objects_in(reply, "facts")[:MOST_FACTS]:
        fact = _fact(table)
        if fact is None or fold(fact.content) in facts:
            continue
        if reason := injection_in((fact.content, fact.subject, fact.category, fact.key, fact.value)):
            dropped.append((fact.content, reason))
        else:
            facts[fold(fact.content)] = fact
    return FactList(tuple(facts.values()), tuple(dropped))


def parts_of(text: str) -> Iterator[str]:
    """Split a long text into parts of at most 8,000 characters, between paragraphs or lines if one ends late enough."""
    while text:
        if len(text) <= _LONGEST_PART:
            yield text
            return
        breaks = (text.rfind(each, _LONGEST_PART // 2, _LONGEST_PART) for each in ("\n\n", "\n"))
        cut = next((at for at in breaks if at > 0), _LONGEST_PART)
        yield text[:cut]
        text = text[cut:].lstrip("\n")


def _messages(parts: Iterable[tuple[str, str]], at: datetime) -> list[Message]:
    text = fenced("text", [with_bars(label, text) for label, text in parts], secrets.token_hex(4))
    return [
        Message("system", _INSTRUCTIONS),
        Message("user", f"Written on {local(at):%A, %Y-%m-%d}.\n{text}\nReply with the JSON of its facts."),
    ]


def _fact(table: dict[str, Any]) -> ExtractedFact | None:
    content = _line(table.get("content"), LONGEST_FACT)
    if len(content) < _SHORTEST_FACT or not terms(content):
        return None
    kind = table.get("type")
    names = {name: _line(table.get(name), _LONGEST_NAME) for name in ("subject", "category", "key", "value")}
    return ExtractedFact(content, type=kind if kind in FACT_TYPES else "note", **names)


def _line(value: object, longest: int) -> str:
    """Return the visible text on one line, without secrets; empty if it is not a string, or too long."""
    if not isinstance(value, str) or len(value) > 4 * longest:
        return ""
    try:
        line = one_line(redact(without_invisible(html.unescape(value)))[0], "a fact")
    except InvalidValue:
        return ""
    return line if len(line) <= longest else ""


def _repeats(fact: ExtractedFact, row: Observation, own: set[str]) -> bool:
    """Return whether a row has nearly all words of a fact, and all those that are the person's `own`."""
    words, known = set(terms(fact.content)), row.text()
    new = words - set(terms(known))
    return len(new) <= (1 - _REPEATED) * len(words) and own.isdisjoint(_words(fact.content) - _words(known))


def _words(text: str) -> set[str]:
    """Return all words, stop words included."""
    return set(re.findall(r"\w+", fold(text)))


MOST_CANDIDATES = 6

Action = Literal["ADD", "UPDATE", "DELETE", "NONE"]
ACTIONS: tuple[Action, ...] = get_args(Action)

_COMPARE = f"""\
You compare new facts with memories. For each fact reply with one decision, as JSON and nothing else:
{{"decisions": [{{"fact": 0, "action": "ADD", "memory": null}}]}}
ADD: none of the memories is about the same thing. UPDATE: the fact is the newer state of memory number N. \
DELETE: the fact says that memory number N is not true any more. NONE: memory number N says the same already.
"memory" is the number of a memory, or null with ADD. When in doubt, ADD.
{DATA}"""

_DECISION: dict[str, Any] = {
    "fact": {"type": "integer"},
    "action": {"type": "string", "enum": list(ACTIONS)},
    "memory": {"type": ["integer", "null"]},
}
_DECISIONS = schema_of(_DECISION, listed="decisions")


class MemoryCandidates(Struct, frozen=True):
    """The memories to compare facts with, and for each fact the numbers of those it may be about."""

    rows: tuple[Observation, ...] = ()
    of_fact: tuple[frozenset[int], ...] = ()


class Decision(Struct, frozen=True):
    """The action for a fact; `memory` is the number of a candidate, None with ADD."""

    action: Action = "ADD"
    memory: int | None = None


async def candidates_for(facts: Sequence[ExtractedFact], memories: Memory, origin: "Origin") -> MemoryCandidates:
    """Return memories like the facts, each fact's best ones first.

    They are facts too, of the same agent, namespace and visibility, not sensitive, and visible to the caller. Lines of
    a profile are left out: they change by rules of their own.
    """
    found = await memories.search_batch(
        [f"{fact.subject} {fact.content}" for fact in facts],
        limit=MOST_CANDIDATES,
        count_use=False,
        types=FACT_TYPES,
        agent_id=origin.agent_id,
        visibilities=(origin.guard.visibility,),
    )
    found = [[hit for hit in hits if not is_proposable(hit.observation)] for hits in found]
    best_first = (hit.observation for hit in chain(*zip_longest(*found)) if hit is not None)
    rows = dict(islice({row.id: row for row in best_first}.items(), MOST_CANDIDATES))
    numbers = {each: number for number, each in enumerate(rows)}
    own = tuple(
        frozenset(numbers[hit.observation.id] for hit in hits if hit.observation.id in numbers) for hits in found
    )
    return MemoryCandidates(tuple(rows.values()), own)


async def reconcile(calls: Calls, facts: Sequence[ExtractedFact], candidates: MemoryCandidates) -> list[Decision]:
    """Decide for each fact, in at most one call of purpose `reconcile`. Raises `ModelError` or `BudgetExceeded`."""
    if not candidates.rows or not facts:
        return [Decision() for _ in facts]
    reply = await calls.ask("reconcile", _comparison(facts, candidates), schema=_DECISIONS)
    return decisions_in(reply, candidates.of_fact)


def decisions_in(reply: str, allowed: Sequence[Collection[int]]) -> list[Decision]:
    """Return one decision for each fact, for any reply; `allowed` are the memories that each fact may be about."""
    answers: dict[int, list[Decision]] = {}
    for table in objects_in(reply, "decisions"):
        number = table.get("fact")
        if type(number) is int and 0 <= number < len(allowed):
            action, memory = table.get("action"), table.get("memory")
            decision = Decision()
            if action in ACTIONS and action != "ADD" and type(memory) is int and memory in allowed[number]:
                decision = Decision(action, memory)
            answers.setdefault(number, []).append(decision)
    decisions = [answers[at][0] if len(answers.get(at, ())) == 1 else Decision() for at in range(len(allowed))]
    # A memory that several facts would change is left alone, and they are added.
    changed = Counter(each.memory for each in decisions if each.action != "NONE")
    return [Decision() if each.action != "NONE" and changed[each.memory] > 1 else each for each in decisions]


def _comparison(facts: Sequence[ExtractedFact], candidates: MemoryCandidates) -> list[Message]:
    shown = [with_bars(f"memory {number}", row.text()) for number, row in enumerate(candidates.rows)]
    shown += [with_bars(f"fact {number}", fact.content) for number, fact in enumerate(facts)]
    text = fenced("compare", shown, secrets.token_hex(4))
    return [Message("system", _COMPARE), Message("user", f"{text}\nReply with the JSON of your decisions.")]


SOURCE = "extraction"
FROM_BOT = "extraction:bot"
"""Source of a fact with words of the bot that the person did not use: it replaces no other."""
_SAME_SUBJECT = 50
"""Maximum facts on a subject that are compared with a new one."""
_SAID_AT_ONCE = 5
"""Maximum rows with the time of one message."""
_ALIKE = 0.85
"""Minimum cosine at which a fact replaces another: two such facts mean nearly the same, and the newer one updates."""
_NEAREST = 10
"""Rows that are compared with a fact by their cosines."""


class TurnText(Struct, frozen=True):
    """The words of the person in a turn that began at time `at`, and the rows in its prompt."""

    at: datetime
    text: str
    recalled: Sequence[Observation] = ()


class Origin(Struct, frozen=True):
    """The origin of facts: who remembers them, how strict they are, the rows they come from, when they were said."""

    agent_id: str
    guard: Guard
    derived_from: tuple[str, ...] = ()
    said_at: datetime | None = None
    own: str = ""
    """The words of the person."""
    question: str = ""
    """The question of the bot that the person answers; it may repeat a tool or a page."""

    def is_of_bot(self, fact: ExtractedFact) -> bool:
        """Return whether a fact uses words of the bot that the person did not use."""
        words = set(terms(f"{fact.content} {fact.subject}"))
        return not words.isdisjoint(set(terms(self.question)) - set(terms(self.own)))


class FactStep(Struct, frozen=True):
    """A planned change for a fact: `target` is the row that it replaces, denies or repeats."""

    fact: ExtractedFact
    action: Action | Literal["KNOWN"] = "ADD"
    """A decision of a model; or `KNOWN`: the fact is added again, which counts as a mention."""
    target: Observation | None = None


class FactOutcome(Struct, frozen=True):
    """The outcome for a fact: the id of its observation, if any, and of the one it changed."""

    fact: ExtractedFact
    outcome: str
    id: str = ""
    changed: str = ""
    reason: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the outcome as JSON for a receipt."""
        return {name: value for name in ("outcome", "id", "changed", "reason") if (value := getattr(self, name))}


async def learn_from(
    turn: TurnText, session: SessionHandle, calls: Calls, settings: ExtractionSettings
) -> tuple[FactList, Sequence[FactOutcome]]:
    """Extract the facts that the person stated in a turn, and remember them; return all, and outcomes of those kept.

    The model sees no reply: small models take the bot's courtesies for facts.

    Facts are as strict as the observation that keeps the exchange. Without one it was small talk, and no model is
    asked; if it is gone after the model has answered, the facts are dropped. Raises a `ModelError`, `BudgetExceeded`
    or `StoreError`; then nothing is kept.
    """
    sensitivities = calls.model.disclosure.sent
    source = await _source(turn, session, sensitivities)
    if source is None:
        return FactList(), ()
    scope = session.memory.scope
    [source] = await with_questions([source], scope.store, scope.view(sensitivities))
    question = str(source.metadata.get(QUESTION, ""))
    extracted = await extract(calls, [("bot asked", question), ("person said", turn.text)], at=turn.at)
    extracted = extracted.without_recalled(turn.text, turn.recalled)
    if not extracted.facts:
        return extracted, ()
    origin = Origin(session.agent_id, Guard.of(source), (source.id,), turn.at, turn.text, question)
    steps = await plan(extracted.facts, session.memory, calls, origin, settings)
    async with session.hold_turn():  # the exchange cannot be undone while its facts are written
        if await _source(turn, session, sensitivities) is None:
            return extracted, ()
        outcomes = await to_its_end(apply(steps, session.memory, origin))
        stated = [(fact.key, fact.value) for fact in extracted.facts if fact.key and fact.value]
        await session.memory.profile_learn(stated, source.id, turn.at)
        return extracted, outcomes


async def plan(
    facts: Sequence[ExtractedFact], memories: Memory, calls: Calls, origin: Origin, settings: ExtractionSettings
) -> list[FactStep]:
    """Plan a step for each fact, in order; one in the bot's words is only added. Raises errors of calls and stores."""
    steps = [FactStep(fact, "KNOWN" if await _is_known(fact, memories, origin) else "ADD") for fact in facts]
    if settings.reconcile:
        fresh = _comparable(steps, origin)
        candidates = await candidates_for([steps[at].fact for at in fresh], memories, origin)
        if not calls.may_send(candidates.rows):
            candidates = replace(candidates, rows=())
        decisions = await reconcile(calls, [steps[at].fact for at in fresh], candidates)
        for at, decision in zip(fresh, decisions, strict=True):
            if decision.memory is not None:
                steps[at] = replace(steps[at], action=decision.action, target=candidates.rows[decision.memory])
    if settings.supersede:
        fresh = _comparable(steps, origin)
        taken = {step.target.id for step in steps if step.target}
        for at, old in zip(fresh, await _outdated_by([steps[at].fact for at in fresh], memories, origin), strict=True):
            if old is not None and old.id not in taken:
                taken.add(old.id)
                steps[at] = replace(steps[at], action="UPDATE", target=old)
    return steps


async def apply(steps: Sequence[FactStep], memories: Memory, origin: Origin) -> list[FactOutcome]:
    """Make the planned changes; return the outcome for each fact, in order. Asks no model.

    A target that changed since it was planned is left alone, and its fact is added.
    """
    targets = [step.target.id for step in steps if step.target]
    hashes = {row.id: row.hash for row in await memories.get(targets, count_use=False)} if targets else {}
    steps = [
        step if step.target is None or hashes.get(step.target.id) == step.target.hash else FactStep(step.fact)
        for step in steps
    ]
    kept = iter(
        await memories.remember_all((_draft(step, origin) for step in steps if step.action != "NONE"), keep_going=True)
    )
    return [await _finish(step, None if step.action == "NONE" else next(kept), memories, origin) for step in steps]


async def _finish(step: FactStep, kept: AddResult | None, memories: Memory, origin: Origin) -> FactOutcome:
    """Return the outcome of one step, after all drafts were committed together."""
    changed = step.target.id if step.target else ""
    if kept is None:
        return FactOutcome(step.fact, "known", id=changed)
    if kept.outcome == "skipped":
        changed = ""
        if step.target:  # the store refused the change: add the fact
            [kept] = await memories.remember_all([_draft(FactStep(step.fact), origin)], keep_going=True)
    return FactOutcome(step.fact, kept.outcome, kept.id, changed if changed != kept.id else "", kept.reason)


def _draft(step: FactStep, origin: Origin) -> Draft:
    fact, guard = step.fact, origin.guard
    target = step.target.id if step.target else None
    needed = [guard.min_clearance, *([step.target.min_clearance] if step.target else [])]
    return Draft(
        title=fact.content,
        subject=fact.subject,
        category=fact.category,
        type=fact.type,
        importance=0.6 if fact.type in PROTECTED_TYPES else 0.5,
        source=FROM_BOT if origin.is_of_bot(fact) else SOURCE,
        visibility=guard.visibility,
        sensitivity=guard.sensitivity,
        min_clearance=min(needed, key=CLEARANCES.index),
        created_at=origin.said_at,
        derived_from=origin.derived_from,
        supersedes=target if step.action == "UPDATE" else None,
        forgets=target if step.action == "DELETE" else None,
    )


async def _is_known(fact: ExtractedFact, memories: Memory, origin: Origin) -> bool:
    """Return whether a row on the same subject has the same text: then no model is asked."""
    if not fact.subject:
        return False
    page = await memories.list_observations(
        subject=fact.subject, agent_id=origin.agent_id, visibilities=(origin.guard.visibility,), limit=_SAME_SUBJECT
    )
    return any(fold(row.title) == fold(fact.content) for row in page.rows)


def _comparable(steps: Sequence[FactStep], origin: Origin) -> list[int]:
    """Return the positions of the steps whose facts are new and may change others."""
    return [at for at, step in enumerate(steps) if step.action == "ADD" and not origin.is_of_bot(step.fact)]


async def _outdated_by(facts: Sequence[ExtractedFact], memories: Memory, origin: Origin) -> list[Observation | None]:
    """Return for each fact the current row that it should replace, if there is one.

    Called before the facts are added, so that no fact finds itself, or another of its batch. Rows without a vector are
    not found. One call of the embedder, none if no fact has a subject.
    """
    wanted = Filter(types=FACT_TYPES, agent_id=origin.agent_id, visibilities=(origin.guard.visibility,))
    about = {at: fact for at, fact in enumerate(facts) if fact.subject}
    asked = [(fact.content, replace(wanted, subject=fact.subject)) for fact in about.values()]
    found = await memories.nearest(asked, limit=_NEAREST)
    outdated: list[Observation | None] = [None] * len(facts)
    for at, hits in zip(about, found, strict=True):
        best = next((hit for hit in hits if not is_proposable(hit.observation)), None)
        if best is not None and best.score >= _ALIKE:
            outdated[at] = best.observation
    return outdated


async def _source(turn: TurnText, session: SessionHandle, sensitivities: Sequence[Sensitivity]) -> Observation | None:
    """Return the observation of the exchange, if there is one that may be sent to the model."""
    page = await session.memory.list_observations(
        types=("exchange",),
        session_id=session.id,
        agent_id=session.agent_id,
        after=turn.at,
        order="created",
        ascending=True,
        limit=_SAID_AT_ONCE,
        sensitivities=sensitivities,
    )
    return next((row for row in page.rows if row.created_at == turn.at), None)

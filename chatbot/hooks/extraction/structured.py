"""Calls of the model for extraction, and its structured answers.

Tried in turn: the whole text, code fences, both without commas before a closing bracket, the outermost `[…]`, then the
whole objects at the beginning of a list that breaks off, and lines such as `content: …`, which small models write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from chatbot.chat.calls import Calls, OwnBudget, Purpose
from chatbot.chat.events import TURN_END, TurnEnd
from chatbot.chat.ledger import Ledger
from chatbot.config import Config, ExtractionSettings, ModelSettings
from chatbot.errors import ChatbotError
from chatbot.hooks.hook import Hook, HookContext, uncancelled
from chatbot.memory import SessionHandle
from chatbot.memory.profile_lines import OWN
from chatbot.memory.scope import utc_now
from chatbot.models.model import Model
from chatbot.stores.base import ObservationStore
from chatbot.stores.errors import StoreError
from chatbot.stores.lifecycle import AsyncResource

if TYPE_CHECKING:
    from chatbot.hooks.extraction.facts import FactList
    from chatbot.hooks.extraction.learning import FactOutcome

_LONGEST = 200_000
_MOST_TRIES = 8
_THOUGHT = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"```[^\n`]{0,40}\n(.*?)(?:```|\Z)", re.DOTALL)
_LIST = re.compile(r"\[\s*(?=[\]{])")
_BETWEEN = re.compile(r"[\s,]*")
_TRAILING = re.compile(r",(?=\s*[\]}])")
_DECODER = json.JSONDecoder(strict=False)

Table = dict[str, Any]


def object_in(text: str) -> Table:
    """Return the first JSON object of a reply; empty where there is none."""
    text = _THOUGHT.sub("", text[:_LONGEST])
    for written in (text, *_FENCE.findall(text)[:_MOST_TRIES]):
        if isinstance(value := _whole(written), dict):
            return value
    for begin in _places("{", text):
        if isinstance(value := _first(text, begin), dict):
            return value
    return {}


def objects_in(text: str, key: str, *, plain: str = "") -> list[Table]:
    """Return the objects of the list that the reply is, or holds under `key`; none where there is no such list.

    With `plain`, each string of a list of strings stands for an object that has it under that name.
    """
    text = _THOUGHT.sub("", text[:_LONGEST])
    parts = (text, *_FENCE.findall(text)[:_MOST_TRIES])
    for written in (*parts, *(_TRAILING.sub("", part) for part in parts)):
        value = _whole(written)
        listed = value.get(key) if isinstance(value, dict) else value
        if isinstance(listed, list):
            is_plain = plain and all(isinstance(each, str) for each in listed)
            return [{plain: each} for each in listed] if is_plain else _tables(listed)
        if isinstance(listed, dict) and listed is not value:
            return [listed]
    return _outermost(_TRAILING.sub("", text))


def records_in(text: str, names: Sequence[str]) -> list[Table]:
    """Return the records of a reply without JSON: lines `name: value`, each record beginning with the first name."""
    records: list[Table] = []
    line = re.compile(
        rf"^[^\w\n]{{0,8}}({'|'.join(names)})[*_`]{{0,2}}:[*_`]{{0,2}}[ \t]*(\S.*)$", re.IGNORECASE | re.MULTILINE
    )
    for found in line.finditer(_THOUGHT.sub("", text[:_LONGEST])):
        name, value = found[1].casefold(), found[2].strip()
        if name == names[0]:
            records.append({})
        if records:
            records[-1].setdefault(name, value)
    return records


def without_wrapping(text: str) -> str:
    """Return the text without the model's thoughts before it, and without a fence around all of it."""
    text = _THOUGHT.sub("", text[:_LONGEST]).strip()
    fenced = _FENCE.fullmatch(text)
    return fenced[1].strip() if fenced else text


def _outermost(text: str) -> list[Table]:
    end = text.rfind("]") + 1
    for found in _found(_LIST, text):
        value = _whole(text[found.start() : end])
        tables = _tables(value) if isinstance(value, list) else _leading(text, found.end())
        if tables or text[found.end() : found.end() + 1] == "]":
            return tables
    return next(([value] for begin in _places("{", text) if isinstance(value := _first(text, begin), dict)), [])


def _leading(text: str, at: int) -> list[Table]:
    """Return the objects from there on, up to the first that is broken."""
    tables: list[Table] = []
    while True:
        between = _BETWEEN.match(text, at)
        at = between.end() if between else at
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return tables
        if not isinstance(value, dict):
            return tables
        tables.append(value)


def _tables(values: list[Any]) -> list[Table]:
    return [value for value in values if isinstance(value, dict)]


def _whole(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None


def _first(text: str, begin: int) -> Any:
    try:
        return _DECODER.raw_decode(text, begin)[0]
    except (ValueError, RecursionError):
        return None


def _places(sign: str, text: str) -> Iterator[int]:
    return (found.start() for found in _found(re.compile(re.escape(sign)), text))


def _found(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Return the first few matches, so that a text of nothing but beginnings takes no longer."""
    for _, found in zip(range(_MOST_TRIES), pattern.finditer(text), strict=False):
        yield found


PURPOSES: tuple[Purpose, ...] = ("extract", "reconcile", "summarize", "standing")


def settings_of_model(chat: ModelSettings, settings: ExtractionSettings) -> ModelSettings | None:
    """Return the model that `[extraction]` names; None where it is the one that chats. Its temperature is 0."""
    if not settings.model:
        return None
    return ModelSettings(
        name=settings.model,
        temperature=0.0,
        max_output_tokens=settings.max_output_tokens,
        timeout_s=settings.timeout_s,
        retries=chat.retries,
        input_usd_per_million=settings.input_usd_per_million,
        output_usd_per_million=settings.output_usd_per_million,
        script=chat.script,
    )


def calls_for_extraction(
    model: Model,
    ledger: Ledger,
    config: Config,
    *,
    session: SessionHandle | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> Calls:
    """Return the calls of one piece of work, within the limits of `[extraction]` and of `[budget]`."""
    settings = config.extraction
    own = OwnBudget(settings.budget_usd, PURPOSES, "budget_usd", "raise it in [extraction], or wait for the next day")
    return Calls(
        model,
        ledger,
        config.budget,
        reply_tokens=settings.max_output_tokens,
        session=session,
        own_budget=own,
        timeout_s=settings.timeout_s,
        clock=clock,
    )


class ExtractionModel(AsyncResource):
    """The model of that name, or else of `[extraction]`: opened when it is first needed, unless it is the chat's."""

    def __init__(self, context: HookContext, name: str = "") -> None:
        self._context = context
        self._name = context.config.aliases.get(name, name)
        self._own: Model | None = None

    def calls(self, session: SessionHandle) -> Calls:
        """Return the calls of one piece of work. Raises what opening a model raises."""
        context, config = self._context, self._context.config
        chosen = replace(config.extraction, model=self._name) if self._name else config.extraction
        other = settings_of_model(config.model, chosen)
        if other is not None and self._own is None:
            self._own = context.open_model(other)
        model = self._own or context.model
        return calls_for_extraction(model, context.ledger, config, session=session, clock=context.clock)

    async def aclose(self) -> None:
        """Close the model if it is not the chat's. May be called twice."""
        own, self._own = self._own, None
        if own is not None:
            await own.aclose()


class Extraction(Hook):
    """Lets models work after the turn, where `[extraction]` is enabled and where `[[standing]]` names one.

    They take facts out of the exchange, and sum up each standing answer that has changed.
    """

    topics = (TURN_END,)
    priority = 150
    timeout_s = 90.0
    background = True

    def __init__(self, context: HookContext) -> None:
        super().__init__(context)
        self._model = ExtractionModel(context)
        names = {each.model for each in context.config.questions if each.model}
        self._standing = {name: ExtractionModel(context, name) for name in names}
        self._tried: dict[str, list[str]] = {}
        """Last result for each answer: a failure is tried again when the answer has changed."""

    async def handle(self, event: TurnEnd) -> None:
        """Extract facts and remember them, and sum up the standing answers; receipts have the outcomes."""
        if self.context.config.extraction.enabled and event.remembrance is not None:
            await self._extract(event)
        if self._standing:
            await self._sum_up(event)

    async def _sum_up(self, event: TurnEnd) -> None:
        from chatbot.hooks.extraction.summaries import sum_up

        session = event.session
        for answer in await session.memory.standing(ask=OWN) if session.supports(ObservationStore) else ():
            if not answer.model or answer.sentence or self._tried.get(answer.question, []) == answer.made_of:
                continue
            self._tried[answer.question] = answer.made_of
            calls = self._standing[answer.model].calls(session)
            notices: list[str] = []
            try:
                notices += await sum_up(answer, session.memory, calls)
            except (ChatbotError, StoreError) as error:
                notices.append(f"nothing was summed up: {error}")
                raise
            finally:
                if calls.made or notices:
                    await uncancelled(calls.note("standing", after=event.turn, notices=notices))

    async def _extract(self, event: TurnEnd) -> None:
        # Loaded late: the governor's patterns take long to compile.
        from chatbot.hooks.extraction.learning import TurnText, learn_from

        calls = self._model.calls(event.session)
        settings = self.context.config.extraction
        turn = TurnText(event.at, event.text, event.reply, event.recalled.rows)
        record: dict[str, object] = {"facts": [], "notices": []}
        try:
            record["facts"] = _outcomes(*await learn_from(turn, event.session, calls, settings))
        except (ChatbotError, StoreError) as error:
            record["notices"] = [f"nothing was extracted: {error}"]
            raise
        finally:
            if calls.made or record["notices"]:
                await uncancelled(calls.note("extraction", after=event.turn, **record))

    async def aclose(self) -> None:
        """Close the models that are not the chat's."""
        for model in (self._model, *self._standing.values()):
            await model.aclose()


def _outcomes(extracted: FactList, learned: Sequence[FactOutcome]) -> list[dict[str, object]]:
    """Return the outcomes for the receipt: without texts, for a receipt would outlive a purge."""
    dropped = [{"outcome": "dropped", "reason": reason} for _, reason in extracted.dropped]
    return [*(each.as_json() for each in learned), *dropped]

"""Find rows by meaning: embed the rows that have no vector, and rank rows by cosine.

Rows are embedded in the background, at no more than half a core and not while a question waits; a search first embeds
a bounded number of them, and closing the rest. No lock is held meanwhile. A remote embedder gets neither sensitive rows
nor questions of a private session. If the embedder or the vectors fail, searches use only words for a while.

The last messages of a chat are embedded together. Each question of the last one, or that message if it only implies a
question, gets another vector, made with the message's other sentences and moved towards the vector of all messages.
"""

import asyncio
import logging
import math
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import accumulate, pairwise
from operator import mul
from typing import TypeVar

from msgspec.structs import replace

from chatbot.embedder import Embedder, Judgement, is_finite
from chatbot.errors import ChatbotError, ModelTimeout
from chatbot.memory.episode import QUESTION, with_questions
from chatbot.memory.scope import Caller, Scope, utc_now
from chatbot.messages import Usage, ends_of
from chatbot.stores.access import SENSITIVITIES, View
from chatbot.stores.base import AsyncResource, ObservationStore
from chatbot.stores.errors import OtherEmbedder, StoreError
from chatbot.stores.fields import how_many
from chatbot.stores.loops import LoopsLock, cancel_and_wait, to_its_end
from chatbot.stores.observation import Observation
from chatbot.stores.query import Filter, Progress, best_cosines
from chatbot.stores.records import Vector, chunks, unit
from chatbot.stores.span import span
from chatbot.stores.text.analysis import is_list, is_question, sentences_of, terms, with_neighbours

logger = logging.getLogger(__name__)

_QUERY_TIMEOUT_S = 5.0
"""Longest wait for a remote embedder; a local one may take `_LOCAL_TIMEOUT_S`, as it is only slow while the machine is
busy or the model is being loaded."""
_LOCAL_TIMEOUT_S = 30.0
_QUIET_S = 1.0
_GAPS = 16
"""Rows without a vector that a search embeds first with a local embedder."""

_MOST_ASKED = 64
_MOST_COMPARED = 250
"""Characters of a text that are compared word by word."""
_SHORT, _LONG = 120, 2_000
"""Bytes above which, and characters up to which, the closest sentences of a text are chosen."""
_SHOWN, _ROOM = 2, 450
"""Sentences of a text that are shown at least, and the bytes up to which more are shown."""
_PARTED, _PART, _MOST_PARTS = 400, 2, 16
"""Bytes above which the parts of a text get vectors too, minimum sentences of a part, and maximum parts. Bytes of
UTF-8, because a character of Chinese has three and says about as much as three letters."""
_NEIGHBOURS = 0.3
"""Share of the closeness of the sentences before and after that is added to that of a sentence."""
_POLITE_S = 0.05
"""Seconds between checks for a waiting question in the background."""
T = TypeVar("T")

Billing = Callable[[str, Usage, float], Awaitable[None]]
"""Called after each call with the model, its usage and the seconds, to bill it with the purpose `embed`."""


class Meaning(AsyncResource):
    """Embedding and search by meaning for one store; close the embedder after it. `notice` gets problems for users."""

    pause_s = 60.0
    """Seconds after a failure in which only words are searched."""
    gaps_s = 5.0
    """Most seconds that a search takes to embed missing rows first."""
    closing_s = 30.0
    """Seconds that closing may continue to embed what this process wrote."""

    def __init__(
        self,
        embedder: Embedder,
        store: ObservationStore,
        *,
        bill: Billing | None = None,
        notice: Callable[[str], None] = logger.warning,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._embedder = embedder
        self.model = embedder.space
        """The id of the space of the embedder's vectors."""
        self._store = store
        self._bill = bill
        self._notice = notice
        self._clock = clock
        self.timeout_s = _QUERY_TIMEOUT_S if embedder.sends_away else _LOCAL_TIMEOUT_S
        self._noticed = ""
        self._paused_until = 0.0
        self._under_way: asyncio.Task[None] | None = None
        self._asking = 0
        self._asked_before: dict[str, list[Vector]] = {}
        """Vectors of recent questions: standing questions are repeated often."""
        self.has_gaps = True
        """True if rows may have no vector yet."""
        self._has_written = False
        self._beginning = threading.Lock()
        self._filling = LoopsLock()
        """Held while a question embeds missing rows: each question would embed the same ones."""

    async def embed_missing(self, *, most: int | None = None, progress: Callable[[int], None] | None = None) -> int:
        """Embed rows that have no vector, newest first, a batch at a time; return how many.

        `progress` is called with the number so far after each batch. Raises as embedder and store do; vectors stay.
        """
        done = 0
        stuck = set[str]()  # rows that were tried, and may have no vector yet
        while most is None or done < most:
            rows = await self._rows_without_vector(self._embedder.batch if most is None else most - done)
            if stuck.issuperset(row.id for row in rows):
                self.has_gaps = False  # not before: a question must not miss what is being embedded
                break
            kept = await self._embed_rows(rows)
            done += kept
            if progress is not None:
                progress(done)
            if kept < len(rows):  # changed, erased or embedded by others meanwhile, or there is nowhere to keep them
                stuck.update(row.id for row in rows)
        return done

    async def embed_all(self, progress: Progress | None = None, *, anew: bool = False) -> int:
        """Embed every row without a vector of this embedder, with `anew` all rows; return how many. Ends a pause."""
        self._paused_until = 0.0
        if not anew:
            with suppress(OtherEmbedder):
                return await self._embed_gaps(progress)
        await self._store.forget_vectors()
        self.has_gaps = True
        return await self._embed_gaps(progress)

    async def _embed_gaps(self, progress: Progress | None) -> int:
        if progress is None:
            return await self.embed_missing()
        total = await self.missing()
        progress(0, total)
        return await self.embed_missing(progress=lambda done: progress(done, max(done, total)))

    async def missing(self) -> int:
        """Return how many rows have no vector yet."""
        return (await self._store.vector_stats(self._full_view())).missing

    def embed_soon(self) -> None:
        """Start embedding missing rows in the background, unless it is running. Never raises."""
        self.has_gaps = self._has_written = True
        with self._beginning:
            if not self.is_under_way and not self._is_paused():
                self._under_way = asyncio.create_task(self._embed_quietly())
                self._under_way.add_done_callback(self._forget_task)

    async def questions_of(self, texts: Sequence[str], asker: Caller | None = None) -> list[list[Vector]]:
        """Return the vectors to search with for each text, after embedding a few missing rows.

        Empty for a text without words, and for all if meaning cannot be used now or the `asker` is in a private
        session, which a notice reports.
        """
        if asker is not None and asker.sensitivity != "public" and self._embedder.sends_away:
            self._report(f"private questions are not sent to {self.model}: for them memory is searched only by words")
            return [[] for _ in texts]
        made = await self._make_each(texts, self._embed_questions)
        return [made.get(text, []) for text in texts]

    async def closeness(self, question: str, rows: Sequence[Observation], view: View) -> dict[str, float]:
        """Return by id how close rows are to a question, word by word, without those that cannot be compared so now."""
        rows = await with_questions(rows, self._store, view)
        texts = {row.id: embedded_text(row)[:_MOST_COMPARED] for row in rows}
        close = await self._compare(question, [*texts.values()])
        return {each: close[text] for each, text in texts.items() if text in close}

    async def closest_sentences(self, asked: Mapping[str, Sequence[Observation]], in_all: int = 0) -> dict[str, str]:
        """Return by id the sentences of a person's words that are closest to a question about its row, with marks.

        Two of each row, or as many as fit its share of `in_all` bytes. Without what is short or not compared now.
        """
        parts: dict[str, list[str]] = {}
        shown = defaultdict[str, set[int]](set)
        for question, rows in asked.items():
            room = min(in_all // max(len(rows), 1), _ROOM)
            said = {row.id: sentences_of(row.user_text, whole_dates=True) for row in rows if _is_long(row)}
            for each, found in said.items():
                near = await self._ratings(question, found) if len(found) > _SHOWN else []
                shown[each] |= _closest(found, near, room) if any(near) else {*range(len(found))}
            parts |= said
        cut = {each: sorted(chosen) for each, chosen in shown.items() if len(chosen) < len(parts[each])}
        return {each: _marked(parts[each], chosen) for each, chosen in cut.items()}

    async def _ratings(self, question: str, sentences: Sequence[str]) -> list[float]:
        """Return how close each sentence is to a question: word by word or, where few can be, by vectors."""
        read = [each[:_MOST_COMPARED] for each in sentences]
        close = await self._compare(question, read)
        if 2 * len(close) < len(read) and not self._embedder.sends_away:
            [asked] = await self.questions_of([question])
            made = await self._make_each(read, lambda some: self._bill_call(self._embed(some), len(some)))
            cosines = ((each, [(text, sum(map(mul, each, other))) for text, other in made.items()]) for each in asked)
            close = best_cosines(cosines, len(made))
        return [0.0 if is_question(each) else close.get(each, 0.0) for each in read]

    async def _compare(self, question: str, texts: Sequence[str]) -> dict[str, float]:
        """Return how close each text is to a question, word by word, without those that cannot be compared so now."""
        asked = ends_of(question, _MOST_COMPARED // 2)

        async def compare(some: Sequence[str]) -> list[float | None]:
            close = await self._within(self._embedder.closeness(asked, some))
            return [close.get(text) for text in some]

        made = await self._make_each(texts, compare)
        return {text: close for text, close in made.items() if close is not None}

    async def judge(self, texts: Sequence[str], *, sentences: bool = False) -> list[Judgement | None]:
        """Judge each text; None for one without words, and for all if nothing can judge now.

        With `sentences`, a text of few sentences also states something if one of them probably does, as requests often.
        """
        parts = {text: found for text in texts if sentences and len(found := sentences_of(text)) <= _MOST_JUDGED}
        every = [*texts, *(part for found in parts.values() for part in found)]
        made = await self._make_each(every, lambda asked: self._in_batches(asked, self._judge_batch))
        return [_judgement_of_parts(made.get(text), [made.get(part) for part in parts.get(text, ())]) for text in texts]

    async def _judge_batch(self, texts: Sequence[str]) -> list[Judgement | None]:
        judged: list[Judgement | None] = [*await self._embedder.judge(texts)]
        return judged or [None for _ in texts]

    @property
    def scale(self) -> float:
        """Factor by which the cosines of questions and rows are multiplied."""
        return self._embedder.scale

    @property
    def is_calibrated(self) -> bool:
        """True if evidence by these cosines can be compared with the thresholds of recall."""
        return self._embedder.is_calibrated

    async def nearest_to(
        self, view: View, vectors: Sequence[Vector], wanted: Filter, *, limit: int
    ) -> dict[str, float]:
        """Return the rows most similar to any of the vectors of a question, with the best cosine, best first."""
        store, model = self._store, self.model
        try:
            found = [(each, await store.nearest(view, each, wanted, model=model, limit=limit)) for each in vectors]
        except (ChatbotError, StoreError) as error:
            self.pause(error)
            return {}
        cosines = [(vector, [(match.id, match.score) for match in nearest]) for vector, nearest in found]
        return {each: min(1.0, self.scale * cosine) for each, cosine in best_cosines(cosines, limit).items()}

    async def aclose(self) -> None:
        """Embed what this process wrote, within `closing_s`; report what is left. May be called twice."""
        if self._under_way is not None:
            await cancel_and_wait(self._under_way)
        if self._has_written and not self._is_paused():
            self._has_written = False
            await self._finish()

    async def _finish(self) -> None:
        waits = f"embedding new memories of {self._store.home} before it is closed, for at most {self.closing_s:g} s"
        notice = asyncio.get_running_loop().call_later(_QUIET_S, self._notice, waits)
        try:
            async with asyncio.timeout(self.closing_s):
                await self.embed_missing()
        except TimeoutError:
            with suppress(ChatbotError, StoreError):
                left = f"{how_many(await self.missing(), 'memory')} of {self._store.home} not embedded yet"
                self._notice(f"{left}: run `chatbot memory reindex --embed` there, or call `memory.embed_memories()`")
        except (ChatbotError, StoreError) as error:
            self.pause(error)
        finally:
            notice.cancel()

    async def _embed_quietly(self) -> None:
        """Embed batch by batch, each to its end; after each, pause as long as it took, and while a question waits."""
        try:
            done = 1
            while done:
                started = time.monotonic()
                batch = self.embed_missing(most=self._embedder.batch)
                done = await to_its_end(batch, longest_s=self.closing_s)  # so that none is paid twice
                await asyncio.sleep(time.monotonic() - started)
                while self._asking:  # noqa: ASYNC110 - an event belongs to one loop; questions may be in any
                    await asyncio.sleep(_POLITE_S)
        except (ChatbotError, StoreError) as error:
            self.pause(error)

    async def _embed_rows(self, rows: Sequence[Observation]) -> int:
        """Embed rows, and keep each as soon as all its texts are embedded; return how many were kept."""
        batch, is_paid = self._embedder.batch, self._embedder.sends_away  # if paid, only whole texts are embedded
        rows = await with_questions(rows, self._store, self._full_view())
        texts = [(row, text) for row in rows for text in (*(() if is_paid else _parts_of(row)), embedded_text(row))]
        made, kept = list[tuple[Observation, Vector]](), 0
        for at in range(0, len(texts), batch):
            some, left = texts[at : at + batch], {row.id for row, _ in texts[at + batch :]}
            vectors = await self._bill_call(self._embed([text for _, text in some]), len(some))
            made += [(row, each) for (row, _), each in zip(some, vectors, strict=True)]
            if broken := {row.id for row, each in made if not is_finite(each)}:
                self._report(f"{self.model} gave no finite vector for some memories: only words find them for now")
            whole = [each for each in made if each[0].id not in left | broken]
            kept += await self._store.put_vectors(self.model, whole)
            made = [each for each in made if each[0].id in left]
        return kept

    async def _rows_without_vector(self, most: int) -> list[Observation]:
        """Return a batch of rows without a vector. Another embedder's vectors are deleted if this one is local."""
        view, limit = self._full_view(), min(most, self._embedder.batch)
        try:
            return await self._store.missing_vectors(view, model=self.model, limit=limit)
        except OtherEmbedder:
            if self._embedder.sends_away:
                raise
            await self._store.forget_vectors()
            return await self._store.missing_vectors(view, model=self.model, limit=limit)

    @property
    def is_under_way(self) -> bool:
        """True if rows are being embedded, in a loop that still runs."""
        task = self._under_way
        return task is not None and not task.done() and not task.get_loop().is_closed()

    def _forget_task(self, task: asyncio.Task[None]) -> None:
        if self._under_way is task:
            self._under_way = None
        if not task.cancelled():
            task.result()

    async def _make_each(
        self, texts: Sequence[str], make: Callable[[Sequence[str]], Awaitable[list[T]]]
    ) -> Mapping[str, T]:
        """Return the result of `make` for each text that has words; nothing if meaning cannot be used now."""
        asked = list(dict.fromkeys(text for text in texts if text.strip()))
        if not asked or self._is_paused():
            return {}
        try:
            await self._embedder.ready()
            return dict(zip(asked, await make(asked), strict=True))
        except (ChatbotError, StoreError) as error:
            self.pause(error)
            return {}

    async def _embed_questions(self, texts: Sequence[str]) -> list[list[Vector]]:
        """Embed questions, after a few missing rows; the background waits meanwhile."""
        self._asking += 1
        try:
            if self.has_gaps and not self._embedder.sends_away:
                filled = _GAPS
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.gaps_s), self._filling:
                        filled = await self.embed_missing(most=_GAPS)  # none if another question has filled them
                if filled >= _GAPS and await self.missing() > 1:  # the question may be one
                    self._report("some memories are not embedded yet: for now only words find them")
            known = self._asked_before  # other questions may replace it meanwhile
            new = [text for text in texts if text not in known]
            work = self._in_batches(new, lambda some: self._bill_call(self._embedder.embed_questions(some), len(some)))
            made = dict(zip(new, await work, strict=True))
            self._asked_before = dict([*(self._asked_before | made).items()][-_MOST_ASKED:])
            vectors = known | made
            return [vectors[text] for text in texts]
        finally:
            self._asking -= 1

    async def _in_batches(self, texts: Sequence[str], work: Callable[[Sequence[str]], Awaitable[list[T]]]) -> list[T]:
        found: list[T] = []
        for some in chunks(texts, self._embedder.batch):
            found += await self._within(work(some))
        return found

    async def _within(self, work: Awaitable[T]) -> T:
        """Await the work for as long as a question may wait."""
        try:
            async with asyncio.timeout(self.timeout_s):
                return await work
        except TimeoutError as error:
            if isinstance(error, ChatbotError):
                raise
            raise ModelTimeout(f"{self._embedder.name}: no answer for {self.timeout_s:g} s") from error

    async def _embed(self, texts: Sequence[str]) -> tuple[list[Vector], Usage]:
        answer = await self._embedder.embed(texts)
        return answer.vectors, answer.usage

    async def _bill_call(self, work: Awaitable[tuple[list[T], Usage]], texts: int) -> list[T]:
        """Await one call of the embedder for a number of texts, as a span and on the bill."""
        begun, model = time.monotonic(), {"model": self._embedder.name, "server": self._embedder.server}
        with span("call", request="embeddings", purpose="embed", **model) as noted:
            found, usage = await work
            noted.note(usage=usage)
        if self._bill is not None:
            await self._bill(self._embedder.name, usage, time.monotonic() - begun)
        self._embedder.check_count(found, texts)
        return found

    def _full_view(self) -> View:
        asked = frozenset({"public"} if self._embedder.sends_away else SENSITIVITIES)
        return View("full", self._clock(), asked, namespaces=None)  # type: ignore[arg-type]

    def pause(self, error: ChatbotError | StoreError) -> None:
        """Search only by words for a while, and report why."""
        self._paused_until = time.monotonic() + self.pause_s
        self._report(f"memory is searched only by words, and by meaning again in {self.pause_s:g} s: {error}")

    def _report(self, problem: str) -> None:
        """Report a problem, once until another one comes."""
        if problem != self._noticed:
            self._noticed = problem
            self._notice(problem)

    def _is_paused(self) -> bool:
        return time.monotonic() < self._paused_until


def embedded_text(row: Observation) -> str:
    """Return the text that is embedded; for an exchange the bot's question, the user's line and the reply.

    The reply is cut to the length of the user's line, which a longer one would outweigh. What the user stated besides
    questions is included twice: later questions are about that.
    """
    question, reply = str(row.metadata.get(QUESTION, "")), row.assistant_text
    reply = reply[: len(row.user_text)] if row.user_text else reply
    said, _ = split_questions(row.user_text)
    parts = (row.title, row.subtitle, row.narrative, *row.facts, question, said, row.user_text, reply)
    return "\n".join(dict.fromkeys(filter(None, parts)))


def _parts_of(row: Observation) -> list[str]:
    """Return the parts of a row's long words that are embedded too, as one vector of many facts is close to none."""
    text = row.narrative or ("" if row.title else row.user_text)
    sentences = sentences_of(text, whole_dates=True) if len(text.encode()) > _PARTED and len(text) <= _LONG else []
    size = max(_PART, math.ceil(len(sentences) / _MOST_PARTS))
    return [" ".join(some) for some in chunks(sentences, size)] if len(sentences) > 1 else []


_MOST_JUDGED = 8
"""Maximum sentences of a text that are judged one by one."""
_MOST_QUESTIONS = 3
"""Maximum questions of one message that get a vector, the last ones."""
_MOST_BESIDE = 40
"""Maximum terms of the other sentences of a message that are embedded with each question; more may be a pasted text."""
_LAST_LINES = 3
"""Number of last messages that are embedded together."""
_LEANING = 3.0
"""Weight of a question in its vector, relative to all lines."""


def _is_long(row: Observation) -> bool:
    is_whole = row.title or row.narrative or is_list(row.user_text)  # corrected, or worth little in parts
    return len(row.user_text.encode()) > _SHORT and len(row.user_text) <= _LONG and not is_whole


def _closest(sentences: Sequence[str], closeness: Sequence[float], room: int) -> set[int]:
    """Return the numbers of the sentences that are closest together with their neighbours: two, or all that fit."""
    best = with_neighbours(closeness, _NEIGHBOURS)
    closest_first = sorted(range(len(best)), key=lambda each: -best[each])
    sizes = accumulate(len(sentences[each].encode()) for each in closest_first)
    return {*closest_first[: max(_SHOWN, sum(size <= room for size in sizes))]}


def _marked(sentences: Sequence[str], shown: Sequence[int]) -> str:
    marked = ["… " * (at - before > 1) + sentences[at] for before, at in pairwise([-1, *shown])]
    return " ".join(marked) + " …" * (shown[-1] < len(sentences) - 1)


def split_questions(text: str) -> tuple[str, list[str]]:
    """Return a message without its questions, and the questions, which end with a question mark."""
    said, questions = list[str](), list[str]()
    for each in sentences_of(text):
        (questions if is_question(each) else said).append(each)
    return " ".join(said), questions


def _judgement_of_parts(judged: Judgement | None, parts: Sequence[Judgement | None]) -> Judgement | None:
    """Return the judgement of a text, which states something if one of its parts does."""
    states = any(part is not None and part.scores.get("states_something", 0.0) > 0 for part in parts)
    return replace(judged, states_something=True) if states and judged is not None else judged


def is_only_questions(text: str) -> bool:
    """Return whether the text is nothing but questions."""
    besides, questions = split_questions(text)
    return bool(questions) and not besides


async def vectors_of(scope: Scope, asked: Sequence[Sequence[str]], *, asks: bool = False) -> list[list[Vector]]:
    """Return the vectors to search with for the last text of each list, in one call; none without an embedder.

    `asks` says that the last text asks for something even without a question mark.
    """
    if scope.meaning is None:
        return [[] for _ in asked]
    wholes = ["\n".join(lines[-_LAST_LINES:]) for lines in asked]
    parts = [
        _questions(lines[-1], whole, asks=asks) if lines else [] for lines, whole in zip(asked, wholes, strict=True)
    ]
    texts = list(dict.fromkeys([*wholes, *(part for each in parts for part in each)]))
    found = await scope.meaning.questions_of(texts, scope.caller)
    made = dict(zip(texts, found, strict=True))
    return [
        [vector for part in each for vector in _lean(made[whole], made[part])] or made[whole]
        for whole, each in zip(wholes, parts, strict=True)
    ]


def _questions(message: str, whole: str, *, asks: bool) -> list[str]:
    """Return the parts that get their own vector: questions with a topic; without any question, a message that `asks`.

    A question comes with the other sentences of its message, which often say what it is about, unless they are long.
    A part that is all of `whole` is left out.
    """
    said, questions = split_questions(message)
    if said and len(list(terms(said))) <= _MOST_BESIDE:  # "I'm at the pharmacy for my tablets. What is their name?"
        questions = [f"{said} {each}" for each in questions]
    parts = questions or ([message.strip()] if asks else [])
    return [each for each in parts if each != whole.strip() and terms(each)][-_MOST_QUESTIONS:]


def _lean(whole: Sequence[Vector], part: Sequence[Vector]) -> list[Vector]:
    """Return a part's vectors, of the same length, each moved towards the vector of the whole by the same encoder."""
    around = [*whole, *[whole[-1]] * len(part)] if whole else []
    return [
        unit([_LEANING * own + other for own, other in zip(each, beside, strict=True)], length=math.hypot(*each))
        for each, beside in zip(part, around, strict=False)
    ]

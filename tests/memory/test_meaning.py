"""Memory by meaning: what is embedded and when, what is given away, what fails quietly, and how scores are joined."""

import asyncio
import math
from asyncio import CancelledError
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from chatbot.embedder import Embedder, EmbeddingResult, Judgement
from chatbot.errors import ModelError, ProviderFailed
from chatbot.memory import MemorySystem
from chatbot.memory.meaning import Meaning, embedded_text, split_questions, vectors_of
from chatbot.messages import Usage
from chatbot.stores.access import View
from chatbot.stores.base import ObservationStore
from chatbot.stores.errors import ClosedResource, OtherEmbedder
from chatbot.stores.in_memory import InMemoryStore
from chatbot.stores.observation import Observation
from chatbot.stores.observations.store import ObservationFileStore
from chatbot.stores.query import Filter
from chatbot.stores.records import Vector, vector
from chatbot.stores.row_events import Event
from chatbot.stores.testing.observation_machine import NOW, OWNER, adding, observation
from tests.patience import PATIENCE_S

IDS = [observation(number).id for number in range(3)]


class LetterEmbedder(Embedder):
    """Each letter of the alphabet is a direction. Stops at its gate, and fails as it is told to."""

    dimension = 26
    batch = 3

    def __init__(self, name: str = "letters", *, sends_away: bool = False) -> None:
        self.name = name
        self.sends_away = sends_away
        self.calls: list[list[str]] = []
        self.failure: ModelError | None = None
        self.broken = ""
        """Text whose vector is not finite."""
        self.gate = asyncio.Event()
        self.gate.set()
        self.asked = asyncio.Event()

    async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        self.calls.append(list(texts))
        self.asked.set()
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        rows = [
            vector([math.nan if text == self.broken else text.lower().count(chr(97 + letter)) for letter in range(26)])
            for text in texts
        ]
        return EmbeddingResult(rows, Usage(input_tokens=len(texts), cost_usd=0.0))


class Raising(LetterEmbedder):
    """Raises an error in one of its methods."""

    def __init__(self, method: str, error: BaseException) -> None:
        super().__init__()
        self.method = method
        self.error = error

    def _step(self, method: str) -> None:
        if method == self.method:
            raise self.error

    async def embed(self, texts: Sequence[str]) -> EmbeddingResult:
        self._step("embed")
        found = await super().embed(texts)
        if self.method == "nothing":
            return None  # type: ignore[return-value]
        if self.method == "no numbers":
            found = EmbeddingResult(["text"] * len(texts), found.usage)  # type: ignore[list-item]
        return EmbeddingResult(found.vectors[self.method == "too few" :], found.usage)

    async def embed_questions(self, texts: Sequence[str]) -> tuple[list[list[Vector]], Usage]:
        self._step("embed_questions")
        return await super().embed_questions(texts)

    async def judge(self, texts: Sequence[str]) -> list[Judgement]:
        self._step("judge")
        return await super().judge(texts)

    async def ready(self) -> None:
        self._step("ready")

    async def aclose(self) -> None:
        self._step("aclose")


FULL = OSError(28), MemoryError(), RuntimeError("can't start new thread")
WRONG = (*FULL, StopAsyncIteration(), ExceptionGroup("a", [KeyError()]), SystemExit(3), CancelledError())


@pytest.mark.parametrize(
    "method", ["embed", "embed_questions", "judge", "ready", "aclose", "too few", "nothing", "no numbers"]
)
async def test_an_embedder_may_raise_anything_and_words_find_memory_which_closes(
    method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for error in WRONG:
        caplog.clear()
        async with MemorySystem(tmp_path / type(error).__name__, embedder=Raising(method, error)) as memory:
            await memory.memory().remember("the boat is blue")
            assert [hit.observation.title for hit in await memory.memory().search("boat")] == ["the boat is blue"]
        with pytest.raises(ClosedResource):
            await memory.memory().search("boat")
        if method in {"embed", "embed_questions"}:
            with_traceback = [bool(each.exc_info) for each in caplog.records if "the model" in each.message]
            assert with_traceback[:1] == [error not in FULL]


@pytest.fixture(params=["files", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ObservationStore]:
    kept: ObservationStore = InMemoryStore(tmp_path)
    if request.param == "files":
        kept = ObservationFileStore(tmp_path / "memory", cache=str(tmp_path / "cache"))
    async with kept:
        yield kept


async def similar(meaning: Meaning, view: View, texts: Sequence[str], **more: Any) -> dict[str, float]:
    """The cosine of each id that is near any of the texts."""
    vectors = [each for found in await meaning.questions_of(texts) for each in found]
    return await meaning.nearest_to(view, vectors, Filter(), **{"limit": 200} | more)


def note(number: int, title: str, **fields: object) -> Observation:
    return observation(number, title=title, **fields)


async def test_questions_at_once_embed_the_missing_rows_once(store: ObservationStore) -> None:
    embedder = LetterEmbedder()
    await store.commit(OWNER, adding(*[note(number, f"note {number}") for number in range(7)]))
    async with Meaning(embedder, store) as meaning:
        await asyncio.gather(*(meaning.questions_of([f"question {number}"]) for number in range(5)))
    rows = [text for call in embedder.calls for text in call if text.startswith("note")]
    assert sorted(rows) == [f"note {number}" for number in range(7)]


async def test_all_gaps_are_embedded_with_progress_whatever_the_caller_sees(store: ObservationStore) -> None:
    told: list[tuple[int, int]] = []
    rows = [note(number, f"note {number}", namespace="other" if number % 2 else "") for number in range(7)]
    await store.commit(replace(OWNER, namespaces=None), adding(*rows))
    async with Meaning(LetterEmbedder(), store) as meaning:
        assert await meaning.embed_all(lambda done, total: told.append((done, total))) == 7
        assert await meaning.missing() == 0
    assert told[0] == (0, 7)
    assert told[-1] == (7, 7)
    assert {done for done, _ in told} == {0, 3, 6, 7}


async def test_several_texts_are_one_call_and_the_best_of_them_counts(store: ObservationStore) -> None:
    embedder = LetterEmbedder()
    await store.commit(OWNER, adding(note(0, "aaa"), note(1, "bbb"), note(2, "ab"), note(3, "zzz")))
    async with Meaning(embedder, store) as meaning:
        await meaning.embed_missing()
        embedder.calls.clear()
        found = await similar(meaning, OWNER, ["a", "b", " "])
        assert embedder.calls == [["a", "b"]]
        assert found == {IDS[1]: 1.0, IDS[0]: 1.0, IDS[2]: pytest.approx(0.707107)}
        assert list(await similar(meaning, OWNER, ["a"], limit=1)) == [IDS[0]]
        assert await similar(meaning, OWNER, ["", "  "]) == {}


async def test_a_question_asked_before_is_known_though_many_others_are_asked_meanwhile(store: ObservationStore) -> None:
    embedder = LetterEmbedder()
    async with asyncio.timeout(PATIENCE_S), Meaning(embedder, store) as meaning:
        await meaning.questions_of(["a"])
        slow = embedder.gate = asyncio.Event()
        embedder.asked.clear()
        both = asyncio.create_task(meaning.questions_of(["a", "b"]))
        await embedder.asked.wait()
        embedder.gate = asyncio.Event()
        embedder.gate.set()
        await meaning.questions_of([f"c{number}" for number in range(64)])
        slow.set()
        assert len(await both) == 2


async def test_a_question_waits_for_no_row_that_others_embed_and_finds_it(store: ObservationStore) -> None:
    embedder = LetterEmbedder()
    await store.commit(OWNER, adding(note(0, "aaa")))
    embedder.gate.clear()
    async with asyncio.timeout(PATIENCE_S), Meaning(embedder, store) as meaning:
        meaning.closing_s = 0.01
        meaning.embed_soon()
        await embedder.asked.wait()
        embedder.gate = asyncio.Event()
        embedder.gate.set()
        assert list(await similar(meaning, OWNER, ["a"])) == [IDS[0]]


async def test_what_is_delicate_is_not_sent_away(store: ObservationStore) -> None:
    rows = [note(0, "open"), note(1, "shy", sensitivity="private"), note(2, "hidden", sensitivity="secret")]
    rows.append(note(3, "unknown", sensitivity="unknown"))
    await store.commit(OWNER, adding(*rows))
    away, here = LetterEmbedder(sends_away=True), LetterEmbedder()
    await Meaning(away, store).embed_missing()
    assert away.calls == [["open"]]
    await Meaning(here, store).embed_missing()
    assert here.calls == [["hidden", "shy"]]


@pytest.mark.parametrize("away", [True, False])
async def test_what_is_asked_in_a_private_session_is_not_sent_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, away: bool
) -> None:
    embedder = LetterEmbedder(sends_away=away)
    async with MemorySystem(tmp_path, embedder=embedder) as memory:
        session = await memory.create_session(("basic_session", "observations"), "chat")
        await session.mark("private")
        await session.memory.search("insulin")
        await session.memory.recall("insulin")
        await session.memory.nearest([("insulin", Filter())])
    assert (embedder.calls == [], "only by words" in caplog.text) == (away, away)


async def test_a_failure_is_told_once_and_words_alone_count_for_a_while(store: ObservationStore) -> None:
    embedder, told = LetterEmbedder(), list[str]()
    await store.commit(OWNER, adding(note(0, "aaa")))
    async with Meaning(embedder, store, notice=told.append) as meaning:
        await meaning.embed_missing()
        embedder.failure = ProviderFailed("letters: the provider is away")
        assert await similar(meaning, OWNER, ["a"]) == {}
        calls = len(embedder.calls)
        assert await similar(meaning, OWNER, ["a"]) == {}
        assert len(embedder.calls) == calls
    assert told == ["memory is searched only by words, and by meaning again in 60 s: letters: the provider is away"]
    async with Meaning(embedder, store, notice=told.append) as meaning:
        meaning.pause_s = 0
        assert await similar(meaning, OWNER, ["a"]) == {}
        assert await similar(meaning, OWNER, ["a"]) == {}
        embedder.failure = None
        assert len(await similar(meaning, OWNER, ["a"])) == 1
    assert len(told) == 2


async def test_a_vector_that_is_not_finite_is_refused_reported_and_asked_for_again(store: ObservationStore) -> None:
    embedder, told, long = LetterEmbedder(), list[str](), note(1, "", user_text=" ".join([f"{60 * 'a'}."] * 7))
    embedder.broken = embedded_text(long)
    await store.commit(OWNER, adding(note(0, "note 0"), long, note(2, "note 2")))

    async def bill(*_: object) -> None:
        embedder.failure = ProviderFailed("letters: the provider is away")

    with pytest.raises(ProviderFailed):
        await Meaning(embedder, store, bill=bill).embed_missing()
    assert await store.missing_vectors(OWNER, model="letters") == [long, note(0, "note 0")]  # the first one was kept
    embedder.failure = None
    async with Meaning(embedder, store, notice=told.append) as meaning:
        meaning.pause_s = 0
        assert await meaning.embed_missing() == 1
        assert await similar(meaning, OWNER, [embedder.broken]) == {}
        embedder.broken = ""
        assert await meaning.embed_missing() == 1
        assert len(await similar(meaning, OWNER, ["note a"])) == 3
    assert [each for each in told if "finite" not in each] == []
    assert len(told) == 2
    embedder.dimension = 25
    for call in (embedder.embed_all, embedder.embed_questions):
        with pytest.raises(ModelError, match="letters has 25 dimensions, and gave a vector of 26 numbers"):
            await call(["a"])


@pytest.mark.parametrize("rows", [1, 2])
async def test_an_embedder_that_is_slow_does_not_hold_up_an_answer(store: ObservationStore, rows: int) -> None:
    embedder, told = LetterEmbedder(), list[str]()
    embedder.gate.clear()
    await store.commit(OWNER, adding(*(note(number, f"aaa {number}") for number in range(rows))))
    async with asyncio.timeout(PATIENCE_S), Meaning(embedder, store, notice=told.append) as meaning:
        meaning.timeout_s = meaning.gaps_s = 0.01
        assert await similar(meaning, OWNER, ["a"]) == {}
    assert rows == 1 or told.pop(0) == "some memories are not embedded yet: for now only words find them"
    assert told == ["memory is searched only by words, and by meaning again in 60 s: letters: no answer for 0.01 s"]


async def test_what_an_embedder_loads_before_its_first_call_takes_no_time_of_that_call(store: ObservationStore) -> None:
    class Loading(LetterEmbedder):
        async def ready(self) -> None:
            await asyncio.sleep(2 * limit_s)

    limit_s = 0.5
    told = list[str]()
    await store.commit(OWNER, adding(observation(0, title="a")))
    async with Meaning(Loading(), store, notice=told.append) as meaning:
        meaning.timeout_s = limit_s
        await meaning.embed_missing()
        assert await similar(meaning, OWNER, ["a"])
    assert told == []


async def test_another_embedder_is_refused_with_what_to_do_until_all_is_embedded_again(store: ObservationStore) -> None:
    told: list[str] = []
    await store.commit(OWNER, adding(note(0, "aaa")))
    await Meaning(LetterEmbedder(), store).embed_missing()
    async with Meaning(LetterEmbedder("other", sends_away=True), store, notice=told.append) as meaning:
        with pytest.raises(OtherEmbedder, match="made by letters with 26 dimensions, not by other"):
            await meaning.embed_missing()
        assert await similar(meaning, OWNER, ["a"]) == {}
        assert "chatbot memory reindex --embed" in told[0]
        assert await meaning.embed_all() == 1
        assert len(await similar(meaning, OWNER, ["a"])) == 1


async def test_vectors_of_another_embedder_make_way_for_one_that_costs_nothing(store: ObservationStore) -> None:
    await store.commit(OWNER, adding(note(0, "aaa")))
    await Meaning(LetterEmbedder(), store).embed_missing()
    async with Meaning(LetterEmbedder("other"), store) as meaning:
        assert len(await similar(meaning, OWNER, ["a"])) == 1
    assert (await store.vector_stats(OWNER)).model == "other"


@pytest.mark.parametrize(("writes", "missing"), [(True, 0), (False, 7)])
async def test_what_was_written_is_embedded_when_the_memory_is_closed_and_nothing_if_it_was_only_read(
    store: ObservationStore, missing: int, *, writes: bool
) -> None:
    await store.commit(OWNER, adding(*[note(number, f"note {number}") for number in range(7)]))
    async with Meaning(LetterEmbedder(), store) as meaning:
        if writes:
            meaning.embed_soon()
    assert (await store.vector_stats(OWNER)).missing == missing


async def test_writing_and_searching_go_on_while_the_embedder_works_in_the_background(store: ObservationStore) -> None:
    embedder = LetterEmbedder()
    await store.commit(OWNER, adding(note(0, "aaa"), note(1, "bbb")))
    async with asyncio.timeout(PATIENCE_S), Meaning(embedder, store) as meaning:
        embedder.gate.clear()
        meaning.embed_soon()
        meaning.embed_soon()
        await embedder.asked.wait()
        await store.commit(OWNER, [Event(kind="update", at=NOW, ids=(IDS[0],), fields={"title": "ccc"})])
        await store.purge(OWNER, [IDS[1]])
        assert len(await store.match(OWNER, ["ccc"], Filter())) == 1
        assert len(embedder.calls) == 1
        embedder.gate.set()
        while (await store.vector_stats(OWNER)).missing:
            meaning.embed_soon()
            await asyncio.sleep(0)
        assert list(await similar(meaning, OWNER, ["c"])) == [IDS[0]]


async def test_a_batch_under_way_is_not_made_again_when_the_memory_is_closed(store: ObservationStore) -> None:
    embedder = LetterEmbedder()
    embedder.gate.clear()
    await store.commit(OWNER, adding(note(0, "aaa")))
    async with Meaning(embedder, store) as meaning:
        meaning.embed_soon()
        await embedder.asked.wait()
        asyncio.get_running_loop().call_later(0.01, embedder.gate.set)
    assert embedder.calls == [["aaa"]]


async def test_closing_stops_what_the_background_does(store: ObservationStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chatbot.memory.meaning._QUIET_S", 0.0)
    embedder = LetterEmbedder()
    embedder.gate.clear()
    await store.commit(OWNER, adding(note(0, "aaa")))
    told: list[str] = []
    async with asyncio.timeout(PATIENCE_S):
        async with Meaning(embedder, store, notice=told.append) as meaning:
            meaning.closing_s = 0.1
            meaning.embed_soon()
            await embedder.asked.wait()
        await meaning.aclose()
    waits, left = told
    assert waits == f"embedding new memories of {store.home} before it is closed, for at most 0.1 s"
    assert left.startswith(f"1 memory of {store.home} not embedded yet: run `chatbot memory reindex --embed` there")


async def test_a_row_without_a_vector_yet_is_found_among_those_that_have_one(tmp_path: Path) -> None:
    async with MemorySystem(tmp_path) as memory:
        first = (await memory.memory().remember("The harbour pilot is Gunnar.")).id
        for number in range(30):
            await memory.memory().remember(f"The harbour was quiet at {number} again.")
    async with MemorySystem(tmp_path, embedder=LetterEmbedder(sends_away=True)) as memory:
        meaning = memory.memory().scope.meaning
        assert meaning is not None
        assert await meaning.embed_missing(most=30) == 30
        found = await memory.memory().recall("Who is the harbour pilot?", limit=1)
    assert [hit.id for hit in found.hits] == [first]


async def test_the_only_word_of_a_search_counts_most_and_function_words_by_meaning(tmp_path: Path) -> None:
    async with MemorySystem(tmp_path, embedder=LetterEmbedder()) as memory:
        held = (await memory.memory().remember("On Mondays I practise the cello, and then I sing.")).id
        near = (await memory.memory().remember("Hello, cell")).id
        await memory.memory().remember("Summer")
        assert [hit.observation.id for hit in await memory.memory().search("Cellos")][:2] == [held, near]
        assert (await memory.memory().search("he'll"))[0].observation.id == near


class SharedLetters(LetterEmbedder):
    async def closeness(self, question: str, texts: Sequence[str]) -> dict[str, float]:
        return {text: float(sum(map(text.count, question))) for text in texts}


LONG = "It is so cold here. " * 6


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"xx xx. yyy. {LONG}", ["xx xx. yyy. …"]), (f"{LONG}xx xx. It was late. yyy.", ["… xx xx. … yyy."]),
        (f"xx. {LONG}yyy. xx. It was. {LONG}", ["… yyy. xx. …"]), (f"xx xx yyy {LONG.replace('.', '')}", []),
        (f"xx xx. yyy. {LONG * 20}", []), (f"xx xx. yyy. {LONG}".replace(". ", ".\n"), []),
    ],
)  # fmt: skip
async def test_of_a_long_text_the_sentences_closest_to_a_question_are_shown(
    store: ObservationStore, text: str, shown: list[str]
) -> None:
    async with Meaning(SharedLetters(), store) as meaning:
        row, *others = [note(number, "", user_text=text if number == 0 else "z") for number in range(4)]
        assert [*(await meaning.closest_sentences({"xy": [row, *others]}, 36)).values()] == shown
        alone = (await meaning.closest_sentences({"xy": [row]}, 36)).values()
        assert [each.count(".") > 2 and len(each) < 50 for each in alone] == [True] * len(shown)  # there is room


@pytest.mark.parametrize(("is_paid", "shown"), [(False, ["xx xx. yyy. …"]), (True, [])])
async def test_sentences_that_have_no_words_to_compare_are_chosen_by_vectors_that_cost_nothing(
    store: ObservationStore, shown: list[str], *, is_paid: bool
) -> None:
    row = note(0, "", user_text=f"xx xx. yyy. {'今天很冷' * 12}。")  # of few characters, which say much
    async with Meaning(LetterEmbedder(sends_away=is_paid), store) as meaning:
        assert [*(await meaning.closest_sentences({"xy": [row]}, 36)).values()] == shown


@pytest.mark.parametrize(
    ("text", "away", "texts"),
    [("ab. " * 10, False, 1), ("ab. " * 200, False, 17), ("ab. " * 200, True, 1), (LONG * 4, False, 13)],
)
async def test_a_long_text_has_vectors_of_some_parts_that_cost_nothing(
    store: ObservationStore, text: str, *, away: bool, texts: int
) -> None:
    await store.commit(OWNER, adding(note(0, "", user_text=text)))
    embedder = LetterEmbedder(sends_away=away)
    async with Meaning(embedder, store) as meaning:
        assert await meaning.embed_missing() == 1
    assert sum(map(len, embedder.calls)) == texts


def test_what_is_embedded_is_what_a_row_says_each_part_once_and_of_a_reply_no_more_than_the_user_said() -> None:
    row = note(0, "tea", narrative="tea", facts=("green",), user_text="which?", assistant_text="that", tags=("x",))
    assert embedded_text(row) == "tea\ngreen\nwhich?\nthat"
    row = note(0, "tea", user_text="which?", assistant_text="green and at length")
    assert embedded_text(row) == "tea\nwhich?\ngreen "
    assert embedded_text(note(0, "", assistant_text="green")) == "green"


@pytest.mark.parametrize(
    ("text", "said", "questions"),
    [
        ("What is my dog called?", "", ["What is my dog called?"]),
        ("The train was late. What is my dog called?", "The train was late.", ["What is my dog called?"]),
        ("It was new to me. What is my dog called?", "It was new to me.", ["What is my dog called?"]),
        ("What is my dog called? The train was late!", "The train was late!", ["What is my dog called?"]),
        ("Who came?! And when?", "Who came?!", ["And when?"]),
        ("今天天气真好。我的狗叫什么？另外，火车几点？", "今天天气真好。", ["我的狗叫什么？", "另外，火车几点？"]),
        ("Would Ann like Dr. Seuss?", "", ["Would Ann like Dr. Seuss?"]),
        ("I said no. Which Prof. Lee has room no. 5?", "I said no.", ["Which Prof. Lee has room no. 5?"]),
        ("Read https://x.example/a?b=1 for me.", "Read https://x.example/a?b=1 for me.", []),
        ("I sold the dog.", "I sold the dog.", []),
        ("", "", []),
    ],
)
def test_a_message_is_what_it_asks_and_what_it_says_besides(text: str, said: str, questions: list[str]) -> None:
    assert split_questions(text) == (said, questions)


async def asked(tmp_path: Path, *lines: str) -> tuple[list[Vector], list[str]]:
    embedder = LetterEmbedder()
    embedder.batch = 9
    async with MemorySystem(tmp_path, embedder=embedder) as memory:
        (found,) = await vectors_of(memory.memory().scope, [lines], asks=True)
    return found, [text for call in embedder.calls for text in call]


@pytest.mark.parametrize("lines", [("Where is my dog?",), ("A dog is here.", "Yes."), ("A dog.", "Why?")])
async def test_lines_have_one_vector_if_there_is_nothing_to_tell_apart(tmp_path: Path, lines: tuple[str, ...]) -> None:
    found, embedded = await asked(tmp_path, *lines)
    assert len(found) == 1
    assert embedded == ["\n".join(lines)]


@pytest.mark.parametrize(
    "lines",
    [
        ("The xxxx was late.", "Where is my qqqq?"),
        (f"The xxxx was late. {'Day after day. ' * 21}Where is my qqqq?",),
        ("The xxxx was late.", "where is my qqqq"),
    ],
)
async def test_a_question_weighs_most_among_messages_and_a_long_text(tmp_path: Path, lines: tuple[str, ...]) -> None:
    (found,), _ = await asked(tmp_path, *lines)
    q, x, z = (found[ord(letter) - ord("a")] for letter in "qxz")
    assert q > x > z == 0
    assert math.hypot(*found) == pytest.approx(1)


async def test_a_question_stands_with_the_other_sentences_of_a_short_message(tmp_path: Path) -> None:
    found, embedded = await asked(tmp_path, "The xxxx was late. What is his name? Where is my qqqq?")
    assert len(found) == 2
    assert embedded[1:] == ["The xxxx was late. What is his name?", "The xxxx was late. Where is my qqqq?"]


async def test_each_of_several_questions_has_a_vector_of_its_own_and_of_many_the_last_ones(tmp_path: Path) -> None:
    found, _ = await asked(tmp_path, "Where is my qqqq? When does the xxxx go?")
    assert [max("qx", key=lambda letter: each[ord(letter) - ord("a")]) for each in found] == ["q", "x"]
    found, embedded = await asked(tmp_path, " ".join(f"Where is dog {number}?" for number in range(9)))
    assert len(found) == 3
    assert embedded[1:] == ["Where is dog 6?", "Where is dog 7?", "Where is dog 8?"]

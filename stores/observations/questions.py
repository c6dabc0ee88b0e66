"""Which rows of a replica match a question by words or meaning, and the data for ranking. Import late: loads NumPy."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import Any

from msgspec.structs import replace

from chatbot.stores.access import View
from chatbot.stores.observation import TYPES, rank
from chatbot.stores.observations import ranking
from chatbot.stores.observations.index import TextIndex
from chatbot.stores.observations.lookups import COLUMNS
from chatbot.stores.observations.replica import Replica
from chatbot.stores.observations.row_vectors import Vectors
from chatbot.stores.observations.segments import Numbers
from chatbot.stores.query import Candidates, Filter, Match, Question, best_cosines
from chatbot.stores.records import unit
from chatbot.stores.text.bm25 import BOOSTS, FIELDS, inverse_frequency

_COMPARED = 100
"""Number of most similar rows whose density is computed: about 1 ms."""
_MOST_TERMS = 32


class Questions:
    """Questions of one caller, under the replica's lock, all lines read; `is_fresh`: nobody has written since."""

    def __init__(self, replica: Replica, view: View, *, is_fresh: bool = False) -> None:
        self._replica = replica
        self._table = replica.table
        self._is_fresh = is_fresh
        self._visible = replica.table.visible(view)

    @cached_property
    def _index(self) -> TextIndex:
        return self._replica.search.caught_up(is_fresh=self._is_fresh)

    @cached_property
    def _vectors(self) -> Vectors:
        return self._replica.vectors()

    def match(self, terms: Sequence[str], wanted: Filter, limit: int) -> list[Match]:
        """Answer `ObservationStore.match`."""
        if "active" not in wanted.statuses or not terms:
            return []
        fitting = ranking.wanted_rows(self._table, wanted)
        found = self._index.ranked(terms, self._visible, limit=limit, wanted=fitting)
        return self._matches(found.rows.tolist(), found.scores.tolist())

    def nearest(self, vector: Sequence[float], wanted: Filter, *, model: str, limit: int) -> list[Match]:
        """Answer `ObservationStore.nearest`."""
        found = dict(self._nearest(vector, wanted, model, limit))
        return self._matches([*found], found.values())

    def later_alike(self, ids: Iterable[str], wanted: Filter, *, model: str, limit: int) -> dict[str, list[Match]]:
        """Answer `ObservationStore.later_alike`."""
        table = self._table
        self._vectors.check(model)
        if "active" not in wanted.statuses:
            return {}
        own = table.numbers_seen(dict.fromkeys(ids), self._visible)
        found = self._vectors.later_alike(own, table.texts, self._mask(wanted), limit)
        return {
            table.ids[number]: self._matches(rows.tolist(), cosines.tolist())
            for number, (rows, cosines) in found.items()
        }

    def frequencies(self, terms: Sequence[str]) -> dict[str, int]:
        """Return how many of the current rows hold each of the terms, without terms that no row holds."""
        terms = list(dict.fromkeys(terms))
        found = self._index.rows_holding(terms, self._visible)
        return {term: count for term, rows in zip(terms, found, strict=True) if (count := len(rows))}

    def count(self) -> int:
        """Return how many rows the caller sees."""
        return self._index.count(self._visible)

    def sessions_about(self, terms: Sequence[str]) -> dict[str, float]:
        """Score how much the current rows of each session are about the terms; see `bm25.score_sessions`."""
        return ranking.sessions_about(self._table, self._index.rows_holding(list(dict.fromkeys(terms)), self._visible))

    def candidates(self, question: Question, wanted: Filter) -> Candidates:
        """Answer `ObservationStore.candidates`."""
        rows = self.count()
        last, earlier, dates = [
            self._weigh(words, rows) for words in (question.terms, question.earlier, question.dates)
        ]
        found = Candidates({each.id: each for each in self.match(list(last), wanted, question.limit)})
        for match in self.match(list(earlier), wanted, question.limit):
            before = found.rows.get(match.id)
            score = (before.score if before else 0.0) + question.earlier_weight * match.score
            found.rows[match.id] = replace(match, score=score)
        found.weight = sum(last.values()) + question.earlier_weight * sum(earlier.values())
        dated = self.match(list(dates), wanted, question.limit)
        whole = BOOSTS[FIELDS.index("dates")] * sum(dates.values()) or 1.0
        found.dated = {match.id: min(1.0, match.score / whole) for match in dated}
        nearest = [(each, self._nearest(each, wanted, question.model, question.limit)) for each in question.vectors]
        cosines = best_cosines(nearest, question.limit)
        similar = self._matches([*cosines], repeat(0.0))
        for match in (*(replace(each, score=0.0) for each in dated), *similar):  # some hold none of the words
            found.rows.setdefault(match.id, match)
        alike = zip(similar, cosines.values(), strict=True)
        found.similar = {match.id: cosine for match, cosine in alike if match.id != question.without}
        found.density = self._densities(list(cosines)[:_COMPARED], question)
        found.rows.pop(question.without, None)
        if any(each.session_id for each in found.rows.values()):
            found.sessions = self.sessions_about(list(last or earlier))
        return found

    def _nearest(self, vector: Sequence[float], wanted: Filter, model: str, limit: int) -> list[tuple[int, float]]:
        """Return the numbers of the rows most similar to the vector, with their cosines."""
        self._vectors.check(model, len(vector))
        if "active" not in wanted.statuses:
            return []
        numbers, cosines = self._vectors.nearest(unit(vector), self._table.texts, self._mask(wanted), limit)
        return list(zip(numbers.tolist(), cosines.tolist(), strict=True))

    def _densities(self, numbers: Sequence[int], question: Question) -> dict[str, float]:
        if not numbers:
            return {}
        found = self._vectors.densities(numbers, question.vectors).tolist()
        return dict(zip(map(self._table.ids.__getitem__, numbers), found, strict=True))

    def _weigh(self, words: Sequence[str], rows: int) -> Mapping[str, float]:
        """Return the distinct words with their inverse frequencies; of too many, the rarest that rows hold."""
        held = self.frequencies(words) if words else {}
        weighed = {word: inverse_frequency(max(rows, 1), held.get(word, 0)) for word in words}
        if len(weighed) <= _MOST_TERMS:
            return weighed
        rarest = {*sorted(held, key=held.__getitem__)[:_MOST_TERMS]}
        return {word: weight for word, weight in weighed.items() if word in rarest}

    def _matches(self, numbers: Sequence[int], scores: Iterable[float]) -> list[Match]:
        known = [self._values(name, numbers) for name in Match.__struct_fields__[2:]]
        return list(map(Match, map(self._table.ids.__getitem__, numbers), scores, *known))

    def _values(self, name: str, numbers: Sequence[int]) -> list[Any]:
        """Return a field of `Match` for each of the rows."""
        table = self._table
        if name == "session_id":
            return list(map(table.sessions.__getitem__, map(table.session_of.__getitem__, numbers)))
        if name == "importance":
            types, given = table.type, table.importance
            return [rank(TYPES[types[number]], given[number], table.current_strength(number)) for number in numbers]
        kept, value = map(getattr(table, name).__getitem__, numbers), COLUMNS[name].value
        return list(kept if value is None else map(value, kept))

    def _mask(self, wanted: Filter) -> Numbers:
        return ranking.wanted_and_seen(self._table, wanted, self._visible)

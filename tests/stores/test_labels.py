"""Labels are the same whether they were read from a snapshot or were never in one."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from chatbot.stores.observations.lookups import Labels

NAMES = ["", "a", "ab", "b", "tags\0grün", "tags\0日本", "tags\0\n", "é"]
name = st.sampled_from(NAMES)


class Life(RuleBasedStateMachine):
    """Changes of a table's labels, beside a plain dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.labels = Labels()
        self.known: dict[str, list[int]] = {}
        self.rows = 0

    @rule(names=st.sets(name))
    def add_a_row(self, names: set[str]) -> None:
        for each in names:
            self.labels.add(each, self.rows)
            self.known.setdefault(each, []).append(self.rows)
        self.rows += 1

    @rule(label=name, data=st.data())
    def label_a_row(self, label: str, data: st.DataObject) -> None:
        if others := [row for row in range(self.rows) if row not in self.known.get(label, ())]:
            row = data.draw(st.sampled_from(others))
            self.labels.insert(label, row)
            self.known[label] = sorted([*self.known.get(label, ()), row])

    @rule(label=name, data=st.data())
    def take_a_label_away(self, label: str, data: st.DataObject) -> None:
        if label in self.known:
            row = data.draw(st.sampled_from(self.known[label]))
            self.labels.remove(label, row)
            self._forget(label, {row})

    @rule(data=st.data())
    def erase(self, data: st.DataObject) -> None:
        gone = data.draw(st.sets(st.integers(0, self.rows)))
        self.labels.erase(gone)
        for label in list(self.known):
            self._forget(label, gone)

    @rule()
    def save_and_open(self) -> None:
        self.labels = Labels(self.labels.written().all())

    @rule(label=name)
    def ask(self, label: str) -> None:
        assert list(self.labels.of(label)) == self.known.get(label, [])

    @rule()
    def ask_for_all(self) -> None:
        assert {label: list(rows) for label, rows in self.labels.items()} == self.known

    def teardown(self) -> None:
        assert {label: list(rows) for label, rows in Labels(self.labels.written().all()).items()} == self.known

    def _forget(self, label: str, gone: set[int]) -> None:
        self.known[label] = [row for row in self.known[label] if row not in gone]
        if not self.known[label]:
            del self.known[label]


TestLife = Life.TestCase

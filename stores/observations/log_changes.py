"""The feed of changes of an identity's observations, read from the places of their lines in the log."""

from __future__ import annotations

from collections.abc import Callable

from chatbot.stores.access import View
from chatbot.stores.observation import STATUSES, Observation
from chatbot.stores.observations.replica import Replica
from chatbot.stores.row_changes import BEGINNING, ChangeCursor, History, Key, Line, Position, key_at, shown


class LogChanges:
    """The `ChangeSource` of a replica, whose lock its user holds. It reads only lines of visible rows."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    def end(self) -> Key:
        return (self._replica.log.position - 1, len(self._replica.table.starts))

    def lines_behind(self, begin: Key, view: View) -> list[Line]:
        table = self._replica.table
        seen = table.visible(view, STATUSES).flags
        found = {
            (place[0], number) for number, places in table.later.items() for place in places if place[0] >= begin[0]
        }
        for number in range(len(table.starts) - 1, -1, -1):
            if number in table.ids.gone:
                continue
            if table.starts[number] < begin[0]:
                break
            found.add((table.starts[number], number))
        return [(key, table.ids[key[1]]) for key in sorted(found) if key > begin and seen[key[1]]]

    def dated(self, observation_id: str) -> History:
        table = self._replica.table
        number = table.numbers[observation_id]
        places = ((start, number) for start, _ in table.places(number))
        return list(zip(places, self._replica.events(number), strict=True))

    def shown_to(self, view: View) -> Callable[[str], Observation]:
        replica, sees = self._replica, self._replica.naming(view)
        return lambda each: shown(replica.row(replica.table.numbers[each]), sees)

    def is_seen(self, observation_id: str, view: View) -> bool:
        return self._replica.table.number_seen(observation_id, view) is not None

    def resumed(self, cursor: ChangeCursor, view: View) -> Key:
        """Return the place of a cursor; in a rewritten log, that of the last row or change before it that is left."""
        table = self._replica.table
        if cursor.log == self._replica.generation:
            return cursor.key
        known = next((number for number in range(cursor.rows - 1, -1, -1) if number not in table.ids.gone), -1)
        rows = BEGINNING if known < 0 else (table.starts[known], known)
        return max(rows, key_at(self, cursor.position, view) or BEGINNING)

    def cursor(self, key: Key, position: Position) -> ChangeCursor:
        """Return a cursor with the number of rows that were added up to the place."""
        starts, gone = self._replica.table.starts, self._replica.table.ids.gone
        known = (number for number in range(len(starts) - 1, -1, -1) if number not in gone and starts[number] <= key[0])
        return ChangeCursor(self._replica.generation, key, next(known, -1) + 1, position)

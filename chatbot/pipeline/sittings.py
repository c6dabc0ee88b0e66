"""What a hook keeps in mind of the sessions used last: bounded, for a server may see any number of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

State = TypeVar("State")
_MOST = 1_000


class Sittings(Generic[State]):
    """A state for each session, made when first asked for; past a thousand, the one used longest ago is forgotten."""

    def __init__(self, begin: Callable[[], State]) -> None:
        self._begin = begin
        self._states: OrderedDict[str, State] = OrderedDict()

    def __getitem__(self, session_id: str) -> State:
        if session_id not in self._states:
            self._states[session_id] = self._begin()
        self._states.move_to_end(session_id)
        while len(self._states) > _MOST:
            self._states.popitem(last=False)
        return self._states[session_id]

    def __setitem__(self, session_id: str, state: State) -> None:
        self._states[session_id] = state

    def pop(self, session_id: str) -> State | None:
        """The session's state, which is forgotten."""
        return self._states.pop(session_id, None)

"""HTTP/1.1 as uvicorn speaks it, but for clients that take for ever to say what they want, or to take what they get."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from chatbot.server.errors import INVALID, Problem


class Impatient(H11Protocol):
    """Hangs up on who has sent no whole head of a request after `timeout_s`, or takes nothing of an answer for so long.

    h11 also bounds the size of a head, which other parsers leave to the app.
    """

    timeout_s: ClassVar[float] = 20.0
    _giving_up: asyncio.TimerHandle | None = None
    _cutting_off: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._giving_up is None and self._is_idle():
            self._wait_for_head()
        super().data_received(data)
        if not self._is_idle():
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._stop_waiting()
        self._stop_cutting_off()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`: the client does not keep up."""
        super().pause_writing()
        self._cutting_off = self.loop.call_later(self.timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._stop_cutting_off()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - it says that the request is invalid, in other words
        """Refuse what no route was found for, in the shape of all errors."""
        answer = Problem(
            400, INVALID, "bad_request", "the head of the request cannot be read, or is too large"
        ).response()
        headers = [*answer.raw_headers, (b"connection", b"close")]
        for event in (
            h11.Response(status_code=400, headers=headers),
            h11.Data(data=bytes(answer.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _stop_cutting_off(self) -> None:
        if self._cutting_off is not None:
            self._cutting_off.cancel()
            self._cutting_off = None

    def _is_idle(self) -> bool:
        cycle = getattr(self, "cycle", None)
        return cycle is None or cycle.response_complete

    def _wait_for_head(self) -> None:
        self._giving_up = self.loop.call_later(self.timeout_s, self._hang_up)

    def _stop_waiting(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def _hang_up(self) -> None:
        self._giving_up = None
        if self._is_idle() and not self.transport.is_closing():
            self.transport.close()


def impatient(timeout_s: float) -> type[Impatient]:
    """The protocol with that patience."""
    return type("Impatient", (Impatient,), {"timeout_s": timeout_s})

"""uvicorn's HTTP/1.1 with time limits for clients that send or read too slowly."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from chatbot.server.errors import INVALID, Problem


class _Connection(h11.Connection):
    """Connection that refuses a header of more than `longest` bytes."""

    def __init__(self, longest: int) -> None:
        super().__init__(h11.SERVER, longest)
        self._longest = longest

    def next_event(self) -> type[h11.NEED_DATA | h11.PAUSED] | h11.Event:
        """Return the next event; reject a header that is too large."""
        event = super().next_event()
        if isinstance(event, h11.Request) and _size(event) > self._longest:
            raise h11.RemoteProtocolError("the head of the request is too large", error_status_hint=431)
        return event


def _size(head: h11.Request) -> int:
    """Return the size of request line and headers with separators."""
    line = len(head.method) + len(head.target) + len(b"  HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + len(b": \r\n") for name, value in head.headers) + len(b"\r\n")


class Impatient(H11Protocol):
    """Protocol that closes connections that send no complete header, or read nothing, for `timeout_s`.

    The size of a header is limited even if it arrives at once; h11 limits only incomplete ones.
    """

    timeout_s: ClassVar[float] = 20.0
    _giving_up: asyncio.TimerHandle | None = None
    _cutting_off: asyncio.TimerHandle | None = None

    def __init__(self, config: uvicorn.Config, *args: Any, **named: Any) -> None:
        super().__init__(config, *args, **named)
        longest = config.h11_max_incomplete_event_size
        if longest is not None:
            self.conn = _Connection(longest)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the request."""
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Start the time limit of a new request, and stop it when the header is complete."""
        if self._giving_up is None and self._is_idle():
            self._wait_for_head()
        super().data_received(data)
        if not self._is_idle():
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time limits."""
        self._stop_waiting()
        self._stop_cutting_off()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start the time limit: the client reads too slowly."""
        super().pause_writing()
        self._cutting_off = self.loop.call_later(self.timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the time limit: the client has read."""
        self._stop_cutting_off()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the message only says that the request is invalid
        """Refuse an invalid request in the common form of errors."""
        answer = Problem(400, INVALID, "bad_request", "the request header is invalid or too large").response()
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

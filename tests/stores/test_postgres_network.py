"""Errors, and rows that are kept, when the connection to the database breaks: before, within or after a commit."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from chatbot.stores.errors import StoreError, StoreFailed
from chatbot.stores.home import Address
from chatbot.stores.postgres import database_connection
from chatbot.stores.postgres.backend import PostgresBackend
from tests.postgres import ROLE, address, owner_url

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("postgres")]

_READY = b"Z\0\0\0\5I"
"""How the server ends an answer once nothing is under way."""


class Proxy:
    """A way to the database that is cut once a client says `word`, before or after the server hears it."""

    def __init__(self) -> None:
        self.word, self.is_heard, self._is_mute = b"", False, False
        """The bytes at which it is cut, and whether the server still gets them."""
        self.is_told = True
        """Whether the client sees that it is cut."""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def cut_at(self, word: bytes, *, is_heard: bool, is_told: bool = True) -> None:
        self.word, self.is_heard, self.is_told = word, is_heard, is_told

    def listens_again(self) -> None:
        self._is_mute = False

    def close(self) -> None:
        self._server.close()
        for each in self._open:
            each.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{parse_qs(urlsplit(owner_url()).query)['host'][0]}/.s.PGSQL.5432")
            self._open += [client, server]
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if self.word and self.word in data:
                    self.word, self._is_mute = b"", self.is_heard
                    if not self.is_heard:
                        break
                elif self._is_mute and source.family == socket.AF_UNIX:
                    if _READY in data and self.is_told:  # it was done, and nobody is told
                        self._is_mute = False
                        break
                    continue
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    proxy = Proxy()
    yield proxy
    proxy.close()


@pytest.fixture
def backend(proxy: Proxy, tmp_path: Path) -> Iterator[PostgresBackend]:
    """An identity behind the proxy."""
    where = Address(f"postgresql://{ROLE}@127.0.0.1:{proxy.port}/postgres?sslmode=disable", address(tmp_path).identity)
    backend = PostgresBackend(where)
    backend.lines("usage").append([{"n": 1}])
    yield backend
    backend.close()


@pytest.mark.parametrize("is_heard", [True, False])
def test_a_commit_that_nobody_answers_is_not_repeated_and_is_told_as_unknown(
    backend: PostgresBackend, proxy: Proxy, *, is_heard: bool
) -> None:
    proxy.cut_at(b"chatbot.line", is_heard=is_heard)
    with pytest.raises(StoreFailed, match="not known whether it was kept"):
        backend.lines("usage").append([{"n": 2}])
    assert [each["n"] for each in backend.lines("usage").all()] == ([1, 2] if is_heard else [1])


@pytest.mark.parametrize("is_heard", [True, False])
def test_a_transaction_is_kept_whole_or_not_at_all(backend: PostgresBackend, proxy: Proxy, *, is_heard: bool) -> None:
    proxy.cut_at(b"COMMIT", is_heard=is_heard)
    with pytest.raises(StoreFailed, match="not known whether it was kept"):
        backend.document("settings").change(lambda _: b"changed")
    assert backend.document("settings").read() == (b"changed" if is_heard else None)


def test_a_network_that_swallows_every_answer_is_waited_for_no_longer_than_allowed(
    backend: PostgresBackend, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_connection, "LONGEST_S", 1.0)
    proxy.cut_at(b"COMMIT", is_heard=True, is_told=False)
    with pytest.raises(StoreFailed, match=r"not known whether it was kept.*no answer for 1 s"):
        backend.document("settings").change(lambda _: b"changed")
    proxy.listens_again()
    assert backend.document("settings").read() == b"changed"


def test_what_only_reads_is_repeated_without_a_word(backend: PostgresBackend, proxy: Proxy) -> None:
    proxy.cut_at(b"chatbot.line", is_heard=False)
    assert [each["n"] for each in backend.lines("usage").all()] == [1]


def test_a_database_without_connections_left_says_so(tmp_path: Path) -> None:
    with psycopg.connect(owner_url(), autocommit=True) as owner:
        owner.execute("DROP ROLE IF EXISTS chatbot_crowded")
        owner.execute(f"CREATE ROLE chatbot_crowded LOGIN CONNECTION LIMIT 1 IN ROLE {ROLE}")
        where = Address(owner_url().replace("//postgres@", "//chatbot_crowded@"), address(tmp_path).identity)
        backend = PostgresBackend(where)
        with psycopg.connect(where.url), pytest.raises(StoreError, match="no connection left: raise max_connections"):
            backend.lines("usage").append([{"n": 1}])
        backend.lines("usage").append([{"n": 2}])
        assert backend.lines("usage").all() == [{"n": 2}]
        backend.close()
        owner.execute("DROP ROLE chatbot_crowded")

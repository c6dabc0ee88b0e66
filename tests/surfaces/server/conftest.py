"""The server of these tests."""

from collections.abc import Iterator

import httpx
import pytest

from tests.servers.http_server import Serve, Served, http

__all__ = ["http"]


@pytest.fixture
def client(http: Serve) -> Iterator[httpx.Client]:
    """A client of a server without tokens."""
    with http().client() as client:
        yield client


@pytest.fixture
def served(http: Serve) -> Served:
    """A server with tokens."""
    return http(tokens=True)

"""The server of these tests."""

from tests.servers.http_server import http

__all__ = ["http"]

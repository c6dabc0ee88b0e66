"""A server of the standard library in a thread of its own, which ends with the test, also with one that failed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseRequestHandler, TCPServer


@contextmanager
def answering(handler: type[BaseRequestHandler], kind: type[TCPServer]) -> Iterator[str]:
    """The address of a server on loopback that answers by `handler`, as long as it is used."""
    with kind(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()

"""A process that keeps stores of observations open for another one, and calls them as it is told.

Pickled requests come in on the standard input and answers go out on the standard output, each behind its length in
eight bytes. A request names a store by a number, one of its methods, and the arguments.
"""

import asyncio
import pickle
import sys
from pathlib import Path
from typing import Any, BinaryIO

from chatbot.stores.observations.store import ObservationFileStore


async def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer until the requests end."""
    stores: dict[int, ObservationFileStore] = {}
    while header := requests.read(8):
        request = pickle.loads(requests.read(int.from_bytes(header, "big")))
        try:
            answer: Any = (True, await _answer(stores, *request))
        except Exception as error:  # noqa: BLE001 - whoever asked shall raise it
            answer = (False, error)
        data = pickle.dumps(answer)
        answers.write(len(data).to_bytes(8, "big") + data)
        answers.flush()


async def _answer(stores: dict[int, ObservationFileStore], number: int, method: str, args: Any, kwargs: Any) -> object:
    if method == "open":
        home = Path(args[0])
        stores[number] = ObservationFileStore(home / "memory", cache=str(home / "cache"), **kwargs)
        return None
    answer = await getattr(stores[number], method)(*args, **kwargs)
    if method == "aclose":
        del stores[number]
    return answer


if __name__ == "__main__":
    asyncio.run(serve(sys.stdin.buffer, sys.stdout.buffer))

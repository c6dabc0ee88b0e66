"""Serve the identity `ada` with a model that does what it is asked; prints the address, and a token that remembers."""

import asyncio
import os
import sys
from pathlib import Path

from chatbot.runtime import Options, Runtime
from chatbot.server.callers import Grant
from chatbot.server.identities import Identities
from chatbot.server.serve import serve
from tests.clients.answering import AnsweringModel


async def main() -> None:
    Path("config.toml").write_text('[agents.chat]\nmemory = ["basic_session", "observations"]\n', encoding="utf-8")
    options = Options(config=Path("config.toml"), port=0)
    async with Identities(
        options, open_runtime=lambda options: Runtime(options, model=AnsweringModel(window=1_000_000))
    ) as identities:

        def tell(url: str) -> None:
            os.write(1, f"{url}/v1 {key}\n".encode())

        key, _ = identities.tokens.add("clients", Grant(("ada",), "full", memory="on"))
        await serve(identities, ready=tell)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

"""A server is announced once its first turn is as fast as the second."""

import asyncio
from pathlib import Path

from chatbot.errors import ConfigError
from chatbot.models import ScriptedModel
from chatbot.runtime import Options, Runtime
from chatbot.server.identities import Identities
from chatbot.server.serve import serve
from tests.patience import PATIENCE_S


class SlowModel(ScriptedModel):
    """Ready when it is told to be."""

    def __init__(self) -> None:
        super().__init__(["Hello."])
        self.asked, self.loaded = asyncio.Event(), asyncio.Event()

    async def ready(self) -> None:
        self.asked.set()
        await self.loaded.wait()


async def test_it_is_announced_when_the_model_is_ready() -> None:
    model = SlowModel()
    Path("config.toml").write_text("", encoding="utf-8")
    announced: asyncio.Queue[str] = asyncio.Queue()
    async with Identities(Options(port=0), open_runtime=lambda options: Runtime(options, model=model)) as identities:
        serving = asyncio.create_task(serve(identities, ready=announced.put_nowait))
        async with asyncio.timeout(PATIENCE_S):
            await model.asked.wait()
            assert announced.empty()
            model.loaded.set()
            assert (await announced.get()).startswith("http://127.0.0.1:")
        serving.cancel()
        await asyncio.wait([serving])


async def test_an_identity_that_cannot_be_opened_keeps_no_door_shut() -> None:
    def fails(_: Options) -> Runtime:
        raise ConfigError("broken")

    async with Identities(Options(port=0), open_runtime=fails) as identities:
        await identities.warm()

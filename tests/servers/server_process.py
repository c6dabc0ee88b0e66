"""A real process of `chatbot serve`, with a scripted model that takes its time."""

import os
import subprocess
import sys
from functools import cached_property
from pathlib import Path

import httpx

from tests.patience import PATIENCE_S

SLOWLY = """
import sys
from chatbot.cli.main import main
from chatbot.models.scripted import ScriptedModel
from chatbot.stores.postgres import place
ScriptedModel.__init__.__kwdefaults__["delay_s"] = 0.02
place.LAPSES_AFTER_S = float(sys.argv[1])
sys.exit(main(["serve", "--port", "0"]))
"""


class ServerProcess:
    """A server process. It is waited for when its `url` is asked for."""

    def __init__(self, folder: Path, cache: Path, *, lapses_after_s: float = 10.0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SLOWLY, str(lapses_after_s)],
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"CHATBOT_CONFIG": str(folder / "config.toml"), "XDG_CACHE_HOME": str(cache)},
        )

    @cached_property
    def url(self) -> str:
        """Where it answers, once it does."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()[0]

    def client(self, token: str) -> httpx.Client:
        """A client with a token, to be closed by its `with`."""
        return httpx.Client(base_url=self.url, headers={"authorization": f"Bearer {token}"}, timeout=PATIENCE_S)

    def kill(self) -> None:
        """Kill it, as a crash would."""
        self.process.kill()
        self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()

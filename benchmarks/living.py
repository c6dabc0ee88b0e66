"""A memory that is lived with: `Runtime` with all its hooks, a clock that is set, a model that reads from a script."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from uuid import uuid4

from chatbot.memory import SessionHandle
from chatbot.messages import Delta, TextDelta, ToolCallDelta
from chatbot.models.scripted import ScriptedModel
from chatbot.runtime import Options, Runtime
from chatbot.tools.function import FunctionTool

AGENT = "chat"
CONFIG = """
[agents.chat]
memory = ["basic_session", "observations"]
tools = []

[memory.observations]
max_observations = {cap}
cache = "{cache}"
"""


@dataclass(frozen=True)
class Line:
    """Text of one turn; with a `suite`, the model has a tool run that suite of tests first."""

    user: str
    reply: str
    suite: str = ""


class Voice:
    """The model's side of the script: it streams what the turn under way says, a tool call first where there is one."""

    def __init__(self) -> None:
        self.model = ScriptedModel([self.speak])
        self._line = Line("", "")
        self._called = False

    def begin(self, line: Line) -> None:
        """The turn that comes next."""
        self._line, self._called = line, False
        self.model.prompts.clear()
        self.model.limits.clear()

    async def speak(self) -> AsyncIterator[Delta]:
        """Yield the model's text or tool call."""
        if self._line.suite and not self._called:
            self._called = True
            yield ToolCallDelta(0, uuid4().hex, "run_tests", json.dumps({"suite": self._line.suite}))
        else:
            yield TextDelta(self._line.reply)


def runtime_in(
    home: Path,
    voice: Voice,
    clock: Callable[[], datetime],
    *,
    cap: int = 0,
    settings: str = "",
    tools: tuple[FunctionTool, ...] = (),
) -> Runtime:
    """A runtime whose identity, configuration and caches stand in `home`."""
    identity = home / "identities" / "ada"
    identity.mkdir(parents=True)
    (identity / "identity.toml").write_text('persona = "You are Ada."\n', encoding="utf-8")
    config = home / "config.toml"
    config.write_text(CONFIG.format(cap=cap, cache=home / "cache") + settings, encoding="utf-8")
    return Runtime(Options(config=config, identity="ada"), model=voice.model, tools=tools, clock=clock)


async def begin(runtime: Runtime) -> SessionHandle:
    """A session that has begun; what that sets off in the background is over before its first turn."""
    session = await runtime.new_session()
    assert session is not None
    await runtime.hooks.begin(session, session.record.created_at)
    await runtime.hooks.settle()
    return session


async def leave(runtime: Runtime, session: SessionHandle) -> None:
    """End the session, and return once what that sets off is done."""
    await runtime.leave(session)
    await runtime.hooks.settle()

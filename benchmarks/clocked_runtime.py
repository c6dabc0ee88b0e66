"""Runs of a `Runtime` with all its hooks, under a clock that can be set, with a model that follows a script."""

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
    """Texts of one turn. With a `suite`, the model first calls a tool that runs that suite of tests."""

    user: str
    reply: str
    suite: str = ""


class Voice:
    """The model's side of the script: streams the reply of the current line, after its tool call if it has one."""

    def __init__(self) -> None:
        self.model = ScriptedModel([self.speak])
        self._line = Line("", "")
        self._called = False

    def begin(self, line: Line) -> None:
        """Set the line of the next turn."""
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
    """Return a runtime whose identity, configuration and caches are in `home`."""
    identity = home / "identities" / "ada"
    identity.mkdir(parents=True)
    (identity / "identity.toml").write_text('persona = "You are Ada."\n', encoding="utf-8")
    config = home / "config.toml"
    config.write_text(CONFIG.format(cap=cap, cache=home / "cache") + settings, encoding="utf-8")
    return Runtime(Options(config=config, identity="ada"), model=voice.model, tools=tools, clock=clock)


async def begin(runtime: Runtime) -> SessionHandle:
    """Begin a session, and wait until its hooks are done."""
    session = await runtime.new_session()
    assert session is not None
    await runtime.hooks.begin_session(session, session.record.created_at)
    await runtime.hooks.wait_idle()
    return session


async def leave(runtime: Runtime, session: SessionHandle) -> None:
    """End the session, and wait until its hooks are done."""
    await runtime.end_session(session)
    await runtime.hooks.wait_idle()

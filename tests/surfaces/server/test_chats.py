"""Conversations that nobody uses any more are left, as they are in a terminal."""

from pathlib import Path

import pytest

from chatbot.chat.events import SESSION_END, SESSION_START
from chatbot.memory import SessionHandle
from chatbot.models import ScriptedModel
from chatbot.runtime import Options, Runtime
from chatbot.server.identity_access import IDLE_S, Chats

TELLING = """
from pathlib import Path

from chatbot.hooks import Hook


class Telling(Hook):
    \"\"\"Writes down when sessions begin and end.\"\"\"

    topics = ("session:start", "session:end")

    async def handle(self, event):
        with Path("told").open("a") as file:
            file.write(f"{event.topic} {event.session.id}\\n")
"""


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    Path("identities/ada").mkdir(parents=True)
    Path("identities/ada/identity.toml").write_text("", encoding="utf-8")
    name = f"telling_{tmp_path.name}".replace("-", "_")
    Path(f"{name}.py").write_text(TELLING, encoding="utf-8")
    Path("config.toml").write_text(f'[hooks."{name}:Telling"]\n', encoding="utf-8")
    return Runtime(Options(config=Path("config.toml")), model=ScriptedModel(["Noted."]))


def told() -> list[tuple[str, ...]]:
    return [tuple(line.split()) for line in Path("told").read_text(encoding="utf-8").splitlines()]


async def opened(runtime: Runtime) -> SessionHandle:
    session = await runtime.new_session()
    assert session is not None
    return session


async def test_a_session_without_a_turn_for_long_ends_and_may_begin_again(runtime: Runtime) -> None:
    now = 0.0
    chats = Chats(clock=lambda: now)
    async with runtime:
        quiet, lively = await opened(runtime), await opened(runtime)
        for session in (quiet, lively):
            await chats.of(runtime, session).turn("The heron stands in the reeds.")
        now = IDLE_S
        await chats.of(runtime, lively).turn("And the coot swims.")
        now += 1
        assert await chats.let_go(lambda *_: True) == 0
        assert await chats.let_go(lambda *_: False) == 1
        assert told()[2:] == [(SESSION_END, quiet.id)]
        await chats.of(runtime, quiet).turn("Still there?")
        assert told()[3:] == [(SESSION_START, quiet.id)]
    assert sorted(told()[4:]) == sorted([(SESSION_END, quiet.id), (SESSION_END, lively.id)])


async def test_of_very_many_those_used_longest_ago_are_left(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chatbot.server.identity_access._MOST", 2)
    chats = Chats()
    async with runtime:
        sessions = [await opened(runtime) for _ in range(4)]
        for session in sessions:
            await chats.of(runtime, session).turn("The heron stands in the reeds.")
        assert await chats.let_go(lambda _, session_id: session_id == sessions[0].id) == 1
        assert told()[4:] == [(SESSION_END, sessions[1].id)]

"""A chat by the usual settings, a configuration with the scripted model, and a runtime's session with its chat."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from chatbot.chat.chat import Chat, Rules
from chatbot.chat.ledger import Ledger
from chatbot.config import AgentSettings, BudgetSettings
from chatbot.memory import SessionHandle
from chatbot.models import ScriptedModel
from chatbot.models.scripted import ScriptedReply
from chatbot.runtime import Runtime
from chatbot.stores.home import Address
from chatbot.stores.plugins import open_place
from chatbot.tools import Tool, Toolbox
from tests.command import project

PERSONA = "You are terse."
SAID = [
    ("My sister Ingrid moved to Tromsø in March", "Noted: Ingrid lives in Tromsø now."),
    ("I decided to learn the cello this year", "The cello it is."),
    ("The cello teacher is called Mr Abara", "I will remember Mr Abara, the cello teacher."),
    ("We still need to buy rosin for the cello", "Rosin is on the list."),
]
"""Messages that are worth remembering, each with its reply."""


def chat_of(
    model: ScriptedModel,
    session: SessionHandle | None,
    home: Path | Address | None = None,
    *tools: Tool,
    settings: AgentSettings | None = None,
    budget: BudgetSettings | None = None,
    most: int = 200,
    **given: Any,
) -> Chat:
    """Return a chat whose bill is in `home`, else in memory, and whose replies have at most so many tokens."""
    rules = Rules(PERSONA, "chat", settings or AgentSettings(), budget or BudgetSettings(), most)
    ledger = Ledger(open_place(home))
    return Chat(model=model, session=session, rules=rules, ledger=ledger, **{"tools": Toolbox(tools), **given})


def configure(tables: str = "", agent: str = "") -> None:
    """Write a configuration with these tables, and these settings of the agent, and the identity `ada`."""
    stores = '[agents.chat]\nmemory = ["basic_session", "observations"]'
    project(f'[model]\nname = "scripted"\n{stores}\n{agent}\n{tables}')


async def begun(runtime: Runtime) -> tuple[SessionHandle, Chat]:
    """Return a new session with its chat."""
    session = await runtime.new_session()
    assert session is not None
    return session, runtime.chat(session)


@asynccontextmanager
async def talking(
    *replies: ScriptedReply, model: ScriptedModel | None = None, **given: Any
) -> AsyncIterator[tuple[Runtime, SessionHandle, Chat]]:
    """Open a runtime, with a model of these replies, with a new session and its chat."""
    async with Runtime(model=model or ScriptedModel(replies), **given) as runtime:
        yield runtime, *await begun(runtime)


def sent(model: ScriptedModel) -> str:
    """Return all that the last prompt of a model says."""
    return "\n".join(message.content for message in model.prompts[-1])

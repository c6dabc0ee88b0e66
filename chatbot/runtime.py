"""The composition root: from settings to an open identity with its memory, model and chats. Closes what it opens."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Self

from msgspec.structs import replace

from chatbot.chat import Chat, Rules
from chatbot.chat.answer import answer
from chatbot.chat.tool_context import ToolContext
from chatbot.config import Config
from chatbot.errors import ConfigError
from chatbot.memory import SessionHandle
from chatbot.memory.record import utc_now
from chatbot.memory.remembering import Memories
from chatbot.memory.told import MemoryEvent
from chatbot.messages import Delta, Message, ToolSpec
from chatbot.models import open_model
from chatbot.models.base import Model
from chatbot.parts import PLAIN
from chatbot.pipeline.pipeline import Pipeline
from chatbot.setup import Options, Setup
from chatbot.telemetry import open_telemetry
from chatbot.tools import Confirm, Tool, Toolbox
from chatbot.tools.mcp import McpServers
from chatbot.tools.plugins import TOOLS, tools_of
from stores.lifecycle import AsyncResource

IN_MEMORY = "in_memory"


class Runtime(AsyncResource):
    """An identity, open: its memory and its model. Open with `async with`.

    `confirm` asks the user about the calls of tools that are not to be made unasked; without it they are refused.
    """

    def __init__(
        self,
        options: Options | None = None,
        *,
        model: Model | None = None,
        tools: tuple[Tool, ...] = (),
        confirm: Confirm | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        options = options or Options()
        self.setup = Setup.resolve(options)
        self.setup.check_stores()
        self.setup.check_tools()
        self.setup.check_hooks()
        self._persona = options.persona or self.setup.identity.persona
        self._ephemeral = options.ephemeral
        self._telemetry = None if options.telemetry else open_telemetry(self.config.telemetry)
        watching = options.telemetry or self._telemetry
        self._parts = parts = watching.parts if watching else PLAIN
        self.model = parts.model(model or open_model(self.setup.config.model))
        self.model_asked_for = model.name if model else self.setup.config.model.name
        """With the folders of a file, which the name of the model has not."""
        self.memory = self.setup.open_memory(
            ephemeral=options.ephemeral, observations=self._observations(), tell=self._tell, clock=clock, parts=parts
        )
        self._clock = clock
        self.ledger = parts.ledger(self.setup.identity.memory)
        self._tools = tools
        self.confirm = confirm
        self._former: list[Model] = []
        self._servers = McpServers(self.config.mcp.servers, self.setup.settings.folder, _judge)
        self.pipeline = Pipeline(
            config=self.config,
            identity=self.setup.identity.name,
            agent=self.agent,
            memory=self.memory,
            model=self.model,
            ledger=self.ledger,
            home=self.memory.home,
            plugins_beside=self.setup.settings.folder,
            clock=clock,
            parts=parts,
        )

    @property
    def config(self) -> Config:
        """The settings in force."""
        return self.setup.config

    @property
    def agent(self) -> str:
        """The agent in use."""
        return self.setup.agent

    @property
    def store_types(self) -> tuple[str, ...]:
        """The stores of new sessions."""
        asked = self.setup.agent_settings.memory
        return (IN_MEMORY,) if asked and self._ephemeral else asked

    def warm(self) -> None:
        """Begin to load, in the background, what a turn will need."""
        self.model.warm()
        if self._uses_servers:
            self._servers.begin()

    def memories(self) -> Memories:
        """What is remembered, for a caller without a session. Raises `ConfigError` where the agent keeps nothing."""
        if not self._ephemeral:
            self.setup.observation_store()
        return self.memory.memories(self.agent)

    async def new_session(self) -> SessionHandle | None:
        """A new session of the agent; None for an agent without stores, which then chats without a memory."""
        if not self.store_types:
            return None
        return await self.memory.create_session(self.store_types, self.agent)

    async def resume(self, text: str | None = None) -> SessionHandle | None:
        """The session with that id, beginning of an id, or title; without a text the one used last, or a new one.

        Raises a `SessionError` where the text does not name one session of this agent.
        """
        if text is not None:
            record = await self.memory.find_session(text, self.agent)
            return await self.memory.load_session(record.id, self.agent)
        if not self.store_types:
            return None
        return await self.memory.latest_session(self.agent) or await self.new_session()

    def chat(self, session: SessionHandle | None) -> Chat:
        """A conversation in `session`, by the rules of the agent."""
        rules = Rules(
            persona=self._persona,
            agent=self.agent,
            settings=self.setup.agent_settings,
            budget=self.config.budget,
            max_output_tokens=self.config.model.max_output_tokens,
        )
        return self._parts.chat(
            model=self.model,
            session=session,
            rules=rules,
            ledger=self.ledger,
            tools=self.tools(session),
            publisher=self.pipeline,
            clock=self._clock,
        )

    def _tell(self, event: MemoryEvent) -> None:
        self.pipeline.tell(event)

    async def leave(self, session: SessionHandle | None) -> None:
        """Tell the hooks that a session is over for now, if it began. What is left open ends with `aclose`."""
        if session is not None:
            await self.pipeline.end(session.id)

    def answer(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec] = (), max_output_tokens: int | None = None
    ) -> AsyncGenerator[Delta, None]:
        """Ask the model just that, without a session; see `answer`. The persona speaks first, unless a system does."""
        if not any(message.role == "system" for message in messages):
            messages = (Message("system", self._persona), *messages)
        most = self.config.model.max_output_tokens
        return answer(
            self.model,
            messages,
            tools=tools,
            max_output_tokens=min(max_output_tokens or most, most),
            budget=self.config.budget,
            ledger=self.ledger,
        )

    async def use_model(self, name: str) -> None:
        """Go on with another model: the next `chat` has it. Raises `ModelError` or `ConfigError`, and changes nothing.

        It is called by the settings of `[model]`, as with the option `model`. Hooks keep the model they began with.
        """
        model = self._parts.model(open_model(replace(self.config.model, name=name)))
        try:
            await model.check()
        except BaseException:
            await model.aclose()
            raise
        self._former.append(self.model)
        self.model, self.model_asked_for = model, name

    def tools(self, session: SessionHandle | None) -> Toolbox:
        """What the model is offered in `session`: what the caller gave, what the agent names, those of servers.

        Nothing where the model takes no tools. Raises `ConfigError`.
        """
        if not self.model.supports_tools:
            return Toolbox()
        memory = self.memory if session is None else self.memory.cleared_for(session.clearance)
        context = ToolContext(session, memory, self.agent, self.setup.identity.name)
        names = self.setup.agent_settings.tools
        named = partial(tools_of, names, context, beside=self.setup.settings.folder)
        is_ours = TOOLS.own.keys() >= set(names)  # nothing is wrong with those, and the first prompt need not wait
        return self._parts.toolbox(
            self._tools if is_ours else (*self._tools, *named()),
            later=named if is_ours else None,
            sources=[self._servers] if self._uses_servers else [],
            confirm=self.confirm,
        )

    def _observations(self) -> str | None:
        try:
            return None if self._ephemeral else self.setup.observation_store()
        except ConfigError:
            return None  # the agent keeps none, and `memories` says so

    async def aclose(self) -> None:
        """End the sessions that were used, close memory and model, end the servers of tools. May be called twice."""
        try:
            await self.pipeline.aclose()
            await self._servers.aclose()
        finally:
            await self.memory.aclose()
            for model in (self.model, *self._former):
                await model.aclose()
            if self._telemetry is not None:
                await self._telemetry.aclose()

    @property
    def _uses_servers(self) -> bool:
        """An agent that is to have no tools has none of theirs either."""
        return bool(self.setup.agent_settings.tools and self.model.supports_tools)

    async def __aenter__(self) -> Self:
        if self.config.sessions.ttl_days:
            await self.memory.expire_sessions()
        return self


def _judge(spec: ToolSpec) -> str | None:
    from chatbot.chat.governor import judge_tool  # late: its patterns take long to compile

    return judge_tool(spec)

"""LiteLLM: a callback that adds memories to each `acompletion`, and remembers what is worth keeping.

litellm.callbacks = [MemoryCallback(memory)]    # once a process: LiteLLM ignores a second one of the same class
await litellm.acompletion(model="gpt-5", messages=[...], user="ada")    # each argument by its name
"""

import asyncio
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, cast
from weakref import finalize, ref

from litellm.integrations.custom_logger import CustomLogger

from chatbot.adapters import ContextOfRuns
from chatbot.embed import AgentMemory, checked, is_block, text_of
from chatbot.stores.loops import to_its_end


class MemoryCallback(CustomLogger):
    """Recalls before a call and records after it.

    With `per_user`, both use the memory of the `user` that the call names. A call without one, or without `messages` by
    name, raises a `ValueError` before anything is sent. A call of `completion` only warns.
    """

    def __init__(self, memory: AgentMemory, *, per_user: bool = False, tokens: int = 2000, rows: int = 5) -> None:
        super().__init__()
        self._memory = checked(memory)
        self._per_user = per_user
        self._contexts = ContextOfRuns(tokens=tokens, rows=rows)
        self._calls: dict[str, tuple[asyncio.Future[None], Callable[[], asyncio.Task[Any] | None]]] = {}
        """Calls not recorded yet, by id: a future that is cancelled on recording, and a weak reference to the task."""

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> dict[str, Any] | None:
        """Add the memory block before the last question."""
        if str(getattr(call_type, "value", call_type)) != "acompletion":
            return None
        if not (messages := kwargs.get("messages")):
            raise ValueError("pass the messages by name, as in acompletion(model=…, messages=[…])")
        if len(asked := _asked_in(messages)) > 1 and is_block(asked[-2]):  # a later round of a tool loop
            return None
        memory = self._memory_of(kwargs)
        reported = kwargs["litellm_logging_obj"]  # its id is that of the report; with fallbacks a call has another
        call, task = str(reported.litellm_call_id), cast("asyncio.Task[Any]", asyncio.current_task())
        self._calls.setdefault(call, (asyncio.get_running_loop().create_future(), ref(task)))
        task.remove_done_callback(self._note_end)  # one suffices for all calls of a task
        task.add_done_callback(self._note_end)
        finalize(reported, self._settle, call).atexit = False  # a stream keeps it until dropped
        context = await self._contexts.of(memory, messages)
        return {**kwargs, "messages": context.added_to(messages)}

    def log_pre_api_call(self, model: Any, messages: Any, kwargs: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Warn about a call without `await`."""
        if kwargs.get("call_type") == "completion":
            warnings.warn("litellm.completion neither recalls nor records: await acompletion", stacklevel=2)

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, *_: Any, **__: Any
    ) -> None:
        """Keep what is worth keeping of the exchange; a reply that only calls tools waits for the next one."""
        if (call := str(kwargs.get("litellm_call_id"))) in self._calls:  # else another callback's: replaced ones go on
            await to_its_end(self._record(call, kwargs, response_obj, start_time))  # LiteLLM cancels us after 20 s

    async_log_stream_event = async_log_success_event  # of a reply that LiteLLM cannot assemble: the question is kept

    async def async_log_failure_event(self, kwargs: dict[str, Any], *_: Any, **__: Any) -> None:
        """Record nothing."""
        self._settle(str(kwargs.get("litellm_call_id")))

    async def settled(self, timeout_s: float = 10.0) -> None:
        """Wait until the calls so far are recorded, as LiteLLM reports them in the background. Raises `TimeoutError`.

        Await it before the memory is closed. A stream that is kept, but not read to its end, is waited for once.
        """
        waiting = [each for each, _ in self._calls.values() if not each.done()]
        if waiting and (late := (await asyncio.wait(waiting, timeout=timeout_s))[1]):
            for each in late:
                each.cancel()
            raise TimeoutError(f"{len(late)} calls were not reported within {timeout_s:g} s")

    async def _record(self, call: str, kwargs: Mapping[str, Any], response: Any, at: datetime) -> None:
        try:
            choices = getattr(response, "choices", None) or [None]
            reply = getattr(choices[0], "message", None)
            asked = [each for each in _asked_in(kwargs.get("messages") or ()) if not is_block(each)]
            if asked and (reply is None or reply.content):
                said = reply.content if reply else ""
                await self._memory_of(kwargs).record(user=asked[-1], assistant=said, at=at.astimezone())
        finally:
            self._settle(call)

    def _settle(self, call: str) -> None:
        if waiting := self._calls.pop(call, None):
            with suppress(RuntimeError):  # the loop is closed; a dropped stream may be noticed in any thread
                waiting[0].get_loop().call_soon_threadsafe(waiting[0].cancel)

    def _note_end(self, task: asyncio.Task[Any]) -> None:
        for call in [call for call, (_, of) in self._calls.items() if task.cancelled() and of() is task]:
            self._settle(call)

    def _memory_of(self, kwargs: Mapping[str, Any]) -> AgentMemory:
        if not self._per_user:
            return self._memory
        if user := kwargs.get("user") or (kwargs.get("optional_params") or {}).get("user"):
            return self._memory.for_user(user)
        raise ValueError("this memory is per_user: pass the user of the call, as in acompletion(…, user='ada')")


def _asked_in(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    return [text_of(each.get("content")) for each in messages if each.get("role") == "user"]

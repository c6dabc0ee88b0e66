"""A model that is called by the helper process of `[model] keep_warm_s`, which holds LiteLLM between commands.

Without a helper, and where LiteLLM is loaded here anyway, it is called as ever. The provider's key is found here, by
the usual rules, and goes with each request; the helper is started without any in its environment.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from chatbot import errors, messages
from chatbot.config import ModelSettings, ProviderSettings
from chatbot.errors import ModelError, ProviderFailed
from chatbot.frames import connected, read_frame
from chatbot.messages import CallOptions, Delta, File, Message, ToolSpec
from chatbot.models import litellm_import
from chatbot.models.gateway import LiteLLMModel
from chatbot.models.helper import HelperAnswer, HelperRequest, send
from chatbot.models.model import JsonMode, Price

_STARTS_WITHIN_S = 10.0
"""The time that a helper may take to listen; importing LiteLLM comes after that."""
_LOOKED_EVERY_S = 0.02
_PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
_PASSED_TOO = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir", "litellm_")
"""How to reach the network; a key of LiteLLM's own proxy is none of that."""


class WarmModel(LiteLLMModel):
    """A model of LiteLLM, called by the helper where that is possible. `is_loaded`: LiteLLM is here anyway."""

    def __init__(
        self,
        settings: ModelSettings,
        providers: Mapping[str, ProviderSettings] | None = None,
        *,
        is_loaded: Callable[[], bool] = litellm_import.has_begun,
    ) -> None:
        super().__init__(settings, providers)
        self._is_loaded = is_loaded
        self._idle_s = settings.keep_warm_s
        self._place: Path | None = None
        self._is_alone = False

    def warm(self) -> None:
        """Start the helper, or else import LiteLLM in the background."""
        if self._is_loaded() or not self._can_be_helped() or not self._begin():
            super().warm()

    async def ready(self) -> None:
        """Wait until LiteLLM is imported here: a server holds it itself."""
        await litellm_import.loaded()

    async def check(self) -> None:
        """Check the configuration in the helper, or here without one."""
        if not await self._is_helped():
            return await super().check()
        await self._told("check")
        return None

    async def context_window(self) -> int:
        """Ask the helper for the context window, in tokens."""
        return int(await self._told("context_window")) if await self._is_helped() else await super().context_window()

    async def price(self) -> Price | None:
        """Ask the helper for the price; None if it is unknown."""
        if not await self._is_helped():
            return await super().price()
        return msgspec.convert(await self._told("price"), Price | None)

    async def json_mode(self) -> JsonMode:
        """Ask the helper which JSON mode the model supports."""
        if not await self._is_helped():
            return await super().json_mode()
        mode: JsonMode = await self._told("json_mode")
        return mode

    async def unknown_options(self, options: CallOptions) -> tuple[str, ...]:
        """Ask the helper which options the model does not know."""
        if not await self._is_helped():
            return await super().unknown_options(options)
        return tuple(await self._told("unknown_options", options=options))

    async def stream(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        max_output_tokens: int | None = None,
        json_schema: Mapping[str, Any] | None = None,
        options: CallOptions | None = None,
    ) -> AsyncGenerator[Delta, None]:
        """Stream the reply from the helper. A reply during which it dies is not repeated: it may have been billed."""
        if await self._is_helped():
            asked = self._asked(
                "stream",
                messages=[_told(message) for message in messages],
                tools=list(tools),
                most_tokens=max_output_tokens,
                schema=None if json_schema is None else dict(json_schema),
                options=options,
            )
            deltas = self._deltas(asked)
        else:
            deltas = super().stream(
                messages, tools=tools, max_output_tokens=max_output_tokens, json_schema=json_schema, options=options
            )
        async with aclosing(deltas):
            async for delta in deltas:
                yield delta

    async def _deltas(self, asked: HelperRequest) -> AsyncGenerator[Delta, None]:
        async with aclosing(self._answers(asked)) as answers:
            async for answer in answers:
                if not answer.is_last:
                    yield msgspec.convert(answer.value, getattr(messages, answer.kind))

    async def _told(self, question: str, **given: Any) -> Any:
        async with aclosing(self._answers(self._asked(question, **given))) as answers:
            return (await anext(answers)).value

    async def _answers(self, asked: HelperRequest) -> AsyncGenerator[HelperAnswer, None]:
        """Yield the helper's answers. Raises its `ModelError`, and `ProviderFailed` if it dies."""
        try:
            reader, writer = await connected(self._socket())
        except OSError as error:
            raise ProviderFailed(f"{self.name}: the helper of keep_warm_s is gone: try again") from error
        try:
            await send(writer, asked)
            is_last = False
            while not is_last:
                answer = msgspec.json.decode(await read_frame(reader), type=HelperAnswer)
                if answer.error:
                    raise _failure(answer)
                is_last = answer.is_last
                yield answer
        except (OSError, EOFError) as error:
            if isinstance(error, ModelError):
                raise
            raise ProviderFailed(f"{self.name}: the helper of keep_warm_s ended: try again") from error
        finally:
            writer.close()

    def _asked(self, question: str, **given: Any) -> HelperRequest:
        settings = msgspec.structs.replace(self._settings, keep_warm_s=0.0)
        return HelperRequest(question, settings, {self.provider.name: self.provider.resolved()}, **given)

    def _can_be_helped(self) -> bool:
        """A provider that logs in by itself does so by the environment, which the helper does not have."""
        return not self._is_alone and bool(self.provider.name) and self.provider.key() is not None

    async def _is_helped(self) -> bool:
        """Return whether the helper is there; it is started where it is not."""
        if self._is_loaded() or not self._can_be_helped():
            return False
        if self._begin():
            until = time.monotonic() + _STARTS_WITHIN_S
            while time.monotonic() < until:
                with suppress(OSError):
                    _, writer = await connected(self._socket())
                    writer.close()
                    return True
                await asyncio.sleep(_LOOKED_EVERY_S)
        self._is_alone = True
        return False

    def _begin(self) -> bool:
        """Start the helper unless it listens. Returns at once, and False where there is no private place for it."""
        try:
            path = self._socket()
            if not path.is_socket():
                _start(path, self._idle_s)
        except OSError:
            return False
        return True

    def _socket(self) -> Path:
        if self._place is None:
            self._place = socket_path(self._idle_s)
        return self._place


def socket_path(idle_s: float) -> Path:
    """Return the socket of this installation's helper. Raises `OSError` if its folder is not the user's alone."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    folder = Path(runtime, "chatbot") if runtime else Path(tempfile.gettempdir(), f"chatbot-{os.geteuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder of this user alone")
    told = [
        sys.executable,
        __file__,
        version("chatbot-runtime"),
        version("litellm"),
        idle_s,
        *sorted(_environment().items()),
    ]
    return folder / f"{hashlib.sha256(repr(told).encode()).hexdigest()[:16]}.sock"


def _environment() -> dict[str, str]:
    """Return the environment variables for the helper: no key."""
    passed = {name for name in os.environ if name.lower().startswith(_PASSED_TOO)} - litellm_import.SETTINGS.keys()
    passed = {name for name in passed if not name.upper().endswith(("KEY", "TOKEN"))}
    return {name: value for name, value in os.environ.items() if name in passed or name in _PASSED}


def _start(path: Path, idle_s: float) -> None:
    process = subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-P", "-m", "chatbot.models.helper", str(path), str(idle_s)],
        cwd="/",
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    process.returncode = 0  # it outlives this process and is not waited for


def _told(message: Message) -> dict[str, Any]:
    parts = tuple(part for part in message.parts if not isinstance(part, File))
    told: dict[str, Any] = msgspec.to_builtins(replace(message, parts=parts))
    return told


def _failure(answer: HelperAnswer) -> ModelError:
    kind = getattr(errors, answer.kind, ProviderFailed)
    failure: ModelError = kind(answer.error) if issubclass(kind, ModelError) else ProviderFailed(answer.error)
    failure.retry_after_s = answer.retry_after_s
    return failure

"""Serve the identity `ada` with a model that does what it is asked; prints the address, and a token that remembers.

Clients expect more than words: the model fills schemas and calls tools.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

from chatbot.messages import CallOptions, Delta, Message, ToolCall, ToolSpec
from chatbot.models import ScriptedModel
from chatbot.runtime import Options, Runtime
from chatbot.server.callers import Grant
from chatbot.server.identities import Identities
from chatbot.server.serve import serve


class AnsweringModel(ScriptedModel):
    """Calls the tool that it must, or the last that a client offers; fills in a schema; else repeats its prompt."""

    async def stream(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        max_output_tokens: int | None = None,
        json_schema: Mapping[str, Any] | None = None,
        options: CallOptions | None = None,
    ) -> AsyncGenerator[Delta, None]:
        options = options or CallOptions()
        self._replies = [_reply(messages, tools, options)]
        async for delta in super().stream(
            messages, tools=tools, max_output_tokens=max_output_tokens, json_schema=json_schema, options=options
        ):
            yield delta


def _reply(messages: Sequence[Message], tools: Sequence[ToolSpec], options: CallOptions) -> Any:
    tool = _tool(messages, tools, options)
    if tool is not None:
        return ToolCall(f"call_{len(messages)}", tool.name, json.dumps(filled(tool.parameters)))
    if options.response_format is not None:
        schema = options.response_format.get("json_schema", {}).get("schema")
        return json.dumps(filled(schema or {"properties": {"answer": {}}}))
    said = [each.content for each in messages if each.role != "system" and each.content]
    return f"I was told: {' | '.join(said)}"


def _tool(messages: Sequence[Message], tools: Sequence[ToolSpec], options: CallOptions) -> ToolSpec | None:
    choice = options.tool_choice
    if isinstance(choice, dict):
        return next(tool for tool in tools if tool.name == choice["function"]["name"])
    if not tools or choice == "none" or (messages[-1].role == "tool" and choice != "required"):
        return None
    last = tools[-1]  # ours, which the server runs, come first
    return None if last.name.startswith(("memory_", "session_", "task_")) else last


def filled(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> Any:
    """Something that fits a JSON schema."""
    root = root or schema
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return filled(root["$defs"][name], root)
    for either in ("anyOf", "oneOf", "allOf"):
        if either in schema:
            return filled(schema[either][0], root)
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if kind == "object":
        return {name: filled(each, root) for name, each in schema.get("properties", {}).items()}
    if kind == "array":
        return [filled(schema.get("items", {}), root)]
    return {"string": "Oslo", "integer": 7, "number": 1.5, "boolean": True}.get(str(kind))


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

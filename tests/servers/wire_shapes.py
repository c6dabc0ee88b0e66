"""Four providers on loopback, each with its own wire shape: OpenAI, Anthropic, Ollama and Gemini, streamed over HTTP.

Each answers by what the prompt holds, so that a reply tells what was recalled, and notes the key that it was sent.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from tests.servers.in_thread import answering


def answer_to(prompt: str) -> str:
    """Return what a model would make of the last note that names a home, for the later of two is true now."""
    homes = re.findall(r"I live in (\w+)", prompt)
    return f"You live in {homes[-1]}." if homes else "I do not know where you live."


class WireShapes(BaseHTTPRequestHandler):
    """All four at one address."""

    keys: ClassVar[list[str]] = []
    prompts: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self._send(
            "application/json", [json.dumps({"models": [{"name": "qwen3:4b"}]}) if "tags" in self.path else "{}"]
        )

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/api/show"):
            self._send("application/json", [json.dumps({"model_info": {}, "template": "", "capabilities": ["tools"]})])
            return
        given = (self.headers.get(name, "") for name in ("Authorization", "x-api-key", "x-goog-api-key"))
        self.keys.append("".join(given).removeprefix("Bearer "))
        self.prompts.append(json.dumps(asked, ensure_ascii=False))
        words = answer_to(self.prompts[-1]).split(" ")
        pieces = [word if at == 0 else f" {word}" for at, word in enumerate(words)]
        if self.path.endswith("/chat/completions"):
            self._send("text/event-stream", _openai(pieces))
        elif self.path.endswith("/messages"):
            self._send("text/event-stream", _anthropic(pieces))
        elif self.path.endswith("/api/chat"):
            self._send("application/x-ndjson", _ollama(pieces))
        else:
            assert ":streamGenerateContent" in self.path, self.path
            self._send("text/event-stream", _gemini(pieces))

    def log_message(self, *_: object) -> None:
        return

    def _send(self, kind: str, parts: list[str]) -> None:
        data = "".join(parts).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def wire_shapes() -> Iterator[str]:
    """The address of a server, as long as it is used."""
    WireShapes.keys.clear()
    WireShapes.prompts.clear()
    with answering(WireShapes, ThreadingHTTPServer) as address:
        yield address


def _event(data: dict[str, Any], name: str = "") -> str:
    return (f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n"


def _openai(pieces: list[str]) -> list[str]:
    base = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5-mini"}
    deltas: list[tuple[dict[str, str], str | None]] = [({"content": piece}, None) for piece in pieces]
    chunks = [
        _event(base | {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
        for delta, reason in [*deltas, ({}, "stop")]
    ]
    usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
    return [*chunks, _event(base | {"choices": [], "usage": usage}), "data: [DONE]\n\n"]


def _anthropic(pieces: list[str]) -> list[str]:
    message: dict[str, Any] = {"id": "x", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5"}
    message |= {"content": [], "stop_reason": None, "stop_sequence": None}
    message |= {"usage": {"input_tokens": 20, "output_tokens": 1}}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
            for piece in pieces
        ),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 5},
        },
        {"type": "message_stop"},
    ]
    return [_event(each, each["type"]) for each in events]


def _ollama(pieces: list[str]) -> list[str]:
    base = {"model": "qwen3:4b", "created_at": "2026-01-01T00:00:00Z"}
    said = [base | {"message": {"role": "assistant", "content": piece}, "done": False} for piece in pieces]
    end = {"done": True, "done_reason": "stop", "prompt_eval_count": 20, "eval_count": 5}
    return [f"{json.dumps(each)}\n" for each in [*said, base | {"message": {"role": "assistant", "content": ""}} | end]]


def _gemini(pieces: list[str]) -> list[str]:
    usage = {"promptTokenCount": 20, "candidatesTokenCount": 5, "totalTokenCount": 25}
    chunks: list[dict[str, Any]] = []
    for at, piece in enumerate(pieces):
        candidate: dict[str, Any] = {"content": {"parts": [{"text": piece}], "role": "model"}, "index": 0}
        candidate |= {"finishReason": "STOP"} if at == len(pieces) - 1 else {}
        chunks.append({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-2.5-flash"})
    return [_event(each) for each in chunks]

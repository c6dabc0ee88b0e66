"""Llama through `cyllama`: the model, its vocabulary and chat template, and streams of tokens.

The KV cache of the previous call is reused as far as the prompts agree; with a seed not, because the state of a token
depends, in its last bits, on the batch in which it was evaluated.

In a prompt, special tokens mark the speaker: a user who could write them could speak as the system. So the template is
rendered with placeholders and split there: only its own parts may hold special tokens, the contents are plain text.
"""

import codecs
import json
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import datetime
from functools import partial
from itertools import groupby, takewhile
from operator import itemgetter
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from msgspec import Struct

from chatbot.errors import ContextTooLong, ProviderFailed, RequestRefused
from chatbot.messages import FinishReason
from chatbot.models.weights import missing_engine
from chatbot.stores.records import chunks

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Template for model files without one."""

Entry = dict[str, str]


class PromptPiece(Struct, frozen=True):
    """A piece of a rendered prompt; special tokens are recognised only where it came from the template."""

    text: str
    is_template: bool


class ChatTemplate:
    """One model's template. `bos` and `eos` are the texts of its special tokens."""

    def __init__(self, source: str | None, *, bos: str = "", eos: str = "") -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = partial(json.dumps, ensure_ascii=False)
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
        self._tokens = {"bos_token": bos, "eos_token": eos}
        try:
            self._template = environment.from_string(source or CHATML)
        except TemplateError as error:
            raise RequestRefused(f"the model's chat template cannot be read: {error}") from error

    def render(self, messages: Sequence[dict[str, Any]]) -> list[PromptPiece]:
        """Return the prompt in pieces, up to the start of the assistant's reply. Raises `RequestRefused`.

        If the template supports no system role, or requires strict turns of user and assistant, messages are merged.
        """
        contents = [_text_of(message) for message in messages]
        # Digits only, so that a template may change the case or trim, and still leave the placeholder alone.
        nonce = secrets.randbits(64)
        marked = [
            {"role": role if role in {"system", "assistant"} else "user", "content": f"[[{nonce}:{number}]]"}
            for number, role in enumerate(message.get("role") for message in messages)  # small models know only these
        ]
        texts = re.split(rf"\[\[{nonce}:(\d+)\]\]", self._render(marked))
        pieces = (
            PromptPiece(contents[int(text)] if at % 2 else text, is_template=at % 2 == 0)
            for at, text in enumerate(texts)
        )
        return [piece for piece in pieces if piece.text]

    def _render(self, messages: list[Entry]) -> str:
        refusal = ""
        merged = _without_system(messages)
        for attempt in (messages, merged, _in_turns(merged)):
            try:
                text = self._template.render(messages=attempt, tools=None, add_generation_prompt=True, **self._tokens)
            except Exception as error:  # noqa: BLE001 - a template is foreign code: it may fail in any way
                refusal = str(error) or type(error).__name__
                continue
            if all(message["content"] in text for message in messages):
                return text
            refusal = "it leaves out a message"
        raise RequestRefused(f"the model's chat template refuses this conversation: {refusal}")


def _without_system(messages: list[Entry]) -> list[Entry]:
    """Return the messages with texts of the system in front of the message that follows; at the end, as the user's."""
    merged: list[Entry] = []
    waiting: list[str] = []
    for message in messages:
        waiting.append(message["content"])
        if message["role"] != "system":
            merged.append({"role": message["role"], "content": "\n\n".join(waiting)})
            waiting.clear()
    return [*merged, *([{"role": "user", "content": "\n\n".join(waiting)}] if waiting else [])]


def _in_turns(messages: list[Entry]) -> list[Entry]:
    """Return the messages with neighbours of the same role joined."""
    turns = groupby(messages, itemgetter("role"))
    return [{"role": role, "content": "\n\n".join(map(itemgetter("content"), turn))} for role, turn in turns]


def _text_of(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if message.get("tool_calls"):
        called = [call["function"] for call in message["tool_calls"]]
        return "\n".join([str(content), *(f"{call['name']}({call['arguments']})" for call in called)]).strip()
    return str(content)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


_REPLACEMENT = "\ufffd"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_CONTROL = 8
_USER_DEFINED = 16


class Vocabulary:
    """The tokens of one model."""

    def __init__(self, vocab: Any) -> None:
        self._vocab = vocab
        self.bos = int(vocab.token_bos())
        self.eos = int(vocab.token_eos())

    def __len__(self) -> int:
        return int(self._vocab.n_vocab)

    def tokenize(self, parts: Sequence[PromptPiece]) -> list[int]:
        """Tokenize a prompt. Contents never become special tokens."""
        source = "".join(part.text for part in parts if part.is_template)
        tokens = [token for part in parts for token in self._tokens_of(part, source)]
        if self._vocab.get_add_bos() and tokens[:1] != [self.bos]:
            tokens.insert(0, self.bos)
        return tokens

    def is_end(self, token: int) -> bool:
        """Return True for an end token."""
        return bool(self._vocab.is_eog(token))

    def name(self, token: int) -> str:
        """Return the text of a special token; empty if the model has none."""
        return str(self._vocab.token_to_piece(token, special=True)) if token >= 0 else ""

    def decoder(self) -> Callable[[int], str]:
        """Return a function that takes a token and returns the characters that it completes, often none."""
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        return lambda token: decode(self.bytes_of(token))

    def bytes_of(self, token: int) -> bytes:
        """Return the bytes of a token, possibly a part of a character; empty for a special token."""
        piece = str(self._vocab.token_to_piece(token, special=False))
        if _REPLACEMENT not in piece:
            return piece.encode()
        text = str(self._vocab.get_text(token))
        if byte := _BYTE.fullmatch(text):
            return bytes.fromhex(byte[1])
        if all(character in _BYTES for character in text):
            return bytes(_BYTES[character] for character in text)
        return piece.encode()

    def _tokens_of(self, part: PromptPiece, source: str) -> list[int]:
        tokens: list[int] = self._vocab.tokenize(part.text, add_special=False, parse_special=part.is_template)
        if part.is_template:
            return tokens
        marks = {mark for token in set(tokens) if (mark := self._mark(token)) and mark in source}
        if not marks:
            return tokens
        # Some models declare their markers as ordinary words, which are recognised everywhere: cut them in two.
        pieces = re.split("|".join(rf"(?<={re.escape(mark[0])})(?={re.escape(mark[1:])})" for mark in marks), part.text)
        return [token for piece in pieces for token in self._vocab.tokenize(piece, False, False)]  # noqa: FBT003

    def _mark(self, token: int) -> str:
        is_mark = int(self._vocab.get_attr(token)) & (_CONTROL | _USER_DEFINED)
        return str(self._vocab.get_text(token)) if is_mark else ""


_PRINTABLE = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
_BYTES = {chr(byte): byte for byte in _PRINTABLE} | {chr(256 + at): byte for at, byte in enumerate(_OTHERS)}
"""The printable characters by which byte-level BPE writes bytes, as GPT-2 chose them."""


_USUAL_WINDOW = 8192
_BATCH_TOKENS = 256
_MOST_THREADS = 8
_ANY_SEED = 0xFFFFFFFF
_TOP_K = 40
_REPEAT_WINDOW = 64
_REPEAT_PENALTY = 1.1


class Sampling(Struct, frozen=True):
    """Sampling of tokens. By default the likeliest is taken: the second choices of a tiny model are poor."""

    temperature: float = 0.0
    top_p: float = 0.9
    seed: int | None = None


class Generation(Struct):
    """Counts of a generation, complete at its end."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reason: FinishReason = "stop"


class Llama:
    """One loaded model with one context, of at most `window` tokens; 0: as trained, at most 8192 to save memory."""

    def __init__(self, path: Path, *, window: int = 0) -> None:
        self._lib = _load_library()
        self._path = path
        parameters = self._lib.LlamaModelParams()
        parameters.n_gpu_layers = 0
        try:
            self._model = self._lib.LlamaModel(str(path), parameters)
        except (ValueError, RuntimeError, OSError) as error:
            raise RequestRefused(f"{path} cannot be loaded as a model: {error}") from error
        self.window = min(window or _USUAL_WINDOW, int(self._model.n_ctx_train))
        self.vocabulary = Vocabulary(self._model.get_vocab())
        self.template = ChatTemplate(
            self._model.get_default_chat_template(),
            bos=self.vocabulary.name(self.vocabulary.bos),
            eos=self.vocabulary.name(self.vocabulary.eos),
        )
        self._context = self._open_context()
        self._cached: list[int] = []
        """The tokens in the KV cache."""

    def generate(
        self,
        prompt: Sequence[int],
        *,
        max_tokens: int,
        sampling: Sampling,
        is_cancelled: threading.Event,
        done: Generation,
    ) -> Iterator[str]:
        """Yield the reply piece by piece, whole characters only, and fill in `done`. Raises `ContextTooLong`.

        An empty piece says that a part of the prompt was read, as a long one may take minutes. Ends early, without an
        error, once it is cancelled.
        """
        room = self.window - len(prompt)
        if room <= 0:
            raise ContextTooLong(f"the prompt has {len(prompt)} tokens, the window of {self._path.name} {self.window}")
        self._context.cancel = False
        done.input_tokens, done.reason = len(prompt), "length"
        done.cached_tokens = self._reuse(prompt if sampling.seed is None else ())
        for batch in chunks(prompt[done.cached_tokens :], _BATCH_TOKENS):
            if not self._evaluate(batch, is_cancelled):
                return
            yield ""
        text_of = self.vocabulary.decoder()
        limit = min(max_tokens, room)
        with closing(self._sampler(sampling)) as sampler:
            while done.output_tokens < limit:
                token = sampler.sample(self._context, -1)
                if self.vocabulary.is_end(token):
                    done.reason = "stop"
                    return
                done.output_tokens += 1
                if piece := text_of(token):
                    yield piece
                if done.output_tokens < limit and not self._evaluate([token], is_cancelled):
                    return

    def cancel(self) -> None:
        """Stop evaluating soon, even in the middle of a batch. Thread-safe; set `is_cancelled` first."""
        self._context.cancel = True

    def close(self) -> None:
        """Free the memory."""
        self._context.close()
        self._model.close()

    def _open_context(self) -> Any:
        parameters = self._lib.LlamaContextParams()
        parameters.n_ctx = self.window
        parameters.n_batch = parameters.n_ubatch = _BATCH_TOKENS
        parameters.n_threads = parameters.n_threads_batch = _threads()
        parameters.no_perf = True
        try:
            context = self._lib.LlamaContext(self._model, parameters)
        except (ValueError, RuntimeError, MemoryError) as error:
            self._model.close()
            raise RequestRefused(
                f"no memory for a window of {self.window} tokens of {self._path.name}: lower context_window in [model]"
            ) from error
        context.install_cancel_callback()
        return context

    def _reuse(self, prompt: Sequence[int]) -> int:
        """Keep the common start of cache and prompt; the last token is always evaluated again."""
        pairs = zip(self._cached, prompt[:-1], strict=False)
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        if not self._context.memory_seq_rm(0, common, -1):
            self._context.kv_cache_clear()  # some architectures cannot drop a part
            common = 0
        del self._cached[common:]
        return common

    def _evaluate(self, batch: Sequence[int], is_cancelled: threading.Event) -> bool:
        """Put tokens into the cache; return False if cancelled."""
        while not is_cancelled.is_set():
            try:
                self._context.decode(self._lib.llama_batch_get_one([*batch], len(self._cached)))
            except InterruptedError:
                self._context.cancel = False  # it may be left over from an earlier generation
            except (ValueError, RuntimeError) as error:
                raise ProviderFailed(f"llama.cpp cannot continue with {self._path.name}: {error}") from error
            else:
                self._cached += batch
                return True
        return False

    def _sampler(self, sampling: Sampling) -> Any:
        sampler = self._lib.LlamaSampler(self._lib.LlamaSamplerChainParams())
        penalties = (_REPEAT_WINDOW, _REPEAT_PENALTY, 0.0, 0.0)
        try:
            sampler.add_penalties(*penalties)
        except TypeError:  # later releases of cyllama ask for the size of the vocabulary first
            sampler.add_penalties(len(self.vocabulary), *penalties)
        if sampling.temperature == 0:
            sampler.add_greedy()
        else:
            sampler.add_top_k(_TOP_K)
            sampler.add_top_p(sampling.top_p, 1)
            sampler.add_temp(sampling.temperature)
            sampler.add_dist(_ANY_SEED if sampling.seed is None else sampling.seed % _ANY_SEED)
        return sampler


def _load_library() -> Any:
    try:
        from cyllama.llama import llama_cpp
    except ImportError as error:
        raise missing_engine() from error
    llama_cpp.disable_logging()
    llama_cpp.ggml_backend_load_all()
    return llama_cpp


def _threads() -> int:
    """Return one thread per idle core, up to the number beyond which a small model gains nothing.

    The threads wait for one another by spinning: with one that has no core of its own, all take several times as long.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    busy = round(os.getloadavg()[0]) if hasattr(os, "getloadavg") else 0
    return max(1, min(cores, (os.cpu_count() or 1) - busy, _MOST_THREADS))

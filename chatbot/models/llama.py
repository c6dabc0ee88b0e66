"""A GGUF model on llama.cpp: tokens in, text out. Blocking, one generation at a time; `local` gives it a thread.

What is left in the KV cache from the call before is reused as far as the prompts agree, so the next turn of a
conversation evaluates only what is new.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chatbot.errors import ContextTooLong, RequestRefused
from chatbot.models.chat_template import ChatTemplate, Part
from chatbot.models.gguf import missing_engine

_BATCH_TOKENS = 256
_REPLACEMENT = "\ufffd"
_LONGEST_HELD_BACK = 8
_DEFAULT_SEED = 0xFFFFFFFF
_REPEAT_WINDOW = 64
_REPEAT_PENALTY = 1.1


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen."""

    temperature: float = 0.0
    top_p: float = 0.9
    seed: int | None = None


@dataclass(slots=True)
class Generation:
    """What a generation took, complete once it has ended."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reason: str = "stop"


class Llama:
    """One loaded model with one context of `window` tokens; 0 takes the length that the model was trained for."""

    def __init__(self, path: Path, *, window: int = 0) -> None:
        self._lib = _load_library()
        parameters = self._lib.LlamaModelParams()
        parameters.n_gpu_layers = 0
        try:
            self._model = self._lib.LlamaModel(str(path), parameters)
        except (ValueError, RuntimeError, OSError) as error:
            raise RequestRefused(f"{path} cannot be loaded as a model: {error}") from error
        self._vocab = self._model.get_vocab()
        trained: int = self._model.n_ctx_train
        self.window = min(window, trained) if window else trained
        self.template = ChatTemplate(
            self._model.get_default_chat_template(),
            bos=self._special(self._vocab.token_bos()),
            eos=self._special(self._vocab.token_eos()),
        )
        self._context: Any = None
        self._cached: list[int] = []

    def tokenize(self, parts: Sequence[Part]) -> list[int]:
        """The tokens of a prompt; special ones only where the template wrote them."""
        tokens: list[int] = []
        for at, part in enumerate(parts):
            begins = at == 0 and self._vocab.get_add_bos() and not self._has_bos(part)
            tokens += self._vocab.tokenize(part.text, add_special=begins, parse_special=part.is_template)
        return tokens

    def generate(
        self,
        prompt: Sequence[int],
        *,
        max_tokens: int,
        sampling: Sampling,
        is_cancelled: threading.Event,
        done: Generation,
    ) -> Iterator[str]:
        """Yield the reply piece by piece, whole characters only, and fill in `done`. Raises `ContextTooLong`."""
        if len(prompt) >= self.window:
            raise ContextTooLong(f"the prompt has {len(prompt)} tokens, and the model's window {self.window}")
        context = self._ready_context()
        done.input_tokens = len(prompt)
        done.cached_tokens = self._reuse(context, prompt)
        done.reason = "length"
        if not self._evaluate(context, prompt[done.cached_tokens :], is_cancelled):
            return
        text = _TextOf(self._vocab.detokenize)
        sampler = self._sampler(sampling)
        for _ in range(min(max_tokens, self.window - len(prompt))):
            token = sampler.sample(context, -1)
            if self._vocab.is_eog(token):
                done.reason = "stop"
                break
            done.output_tokens += 1
            if piece := text.add(token):
                yield piece
            if not self._evaluate(context, [token], is_cancelled):
                return
        if rest := text.flush():
            yield rest

    def close(self) -> None:
        """Free the memory."""
        if self._context is not None:
            self._context.close()
            self._context = None
        self._model.close()

    def _ready_context(self) -> Any:
        if self._context is None:
            parameters = self._lib.LlamaContextParams()
            parameters.n_ctx = self.window
            parameters.n_batch = _BATCH_TOKENS
            parameters.n_threads = parameters.n_threads_batch = _threads()
            parameters.no_perf = True
            self._context = self._lib.LlamaContext(self._model, parameters)
        return self._context

    def _reuse(self, context: Any, prompt: Sequence[int]) -> int:
        """Keep what the cache and the prompt begin with alike; the last token is always evaluated anew."""
        common = 0
        for cached, wanted in zip(self._cached, prompt[:-1], strict=False):
            if cached != wanted:
                break
            common += 1
        if not context.memory_seq_rm(0, common, -1):
            context.kv_cache_clear()
            common = 0
        del self._cached[common:]
        return common

    def _evaluate(self, context: Any, tokens: Sequence[int], is_cancelled: threading.Event) -> bool:
        """Put tokens into the cache, in batches small enough to be stopped between; whether it came to the end."""
        for start in range(0, len(tokens), _BATCH_TOKENS):
            if is_cancelled.is_set() or len(self._cached) >= self.window:
                return False
            batch = list(tokens[start : start + _BATCH_TOKENS])
            context.decode(self._lib.llama_batch_get_one(batch, len(self._cached)))
            self._cached += batch
        return True

    def _sampler(self, sampling: Sampling) -> Any:
        sampler = self._lib.LlamaSampler(self._lib.LlamaSamplerChainParams())
        penalties = (_REPEAT_WINDOW, _REPEAT_PENALTY, 0.0, 0.0)
        try:
            sampler.add_penalties(*penalties)
        except TypeError:  # later releases of cyllama ask for the size of the vocabulary first
            sampler.add_penalties(self._vocab.n_vocab, *penalties)
        if sampling.temperature == 0:
            sampler.add_greedy()
        else:
            sampler.add_top_p(sampling.top_p, 1)
            sampler.add_temp(sampling.temperature)
            sampler.add_dist(_DEFAULT_SEED if sampling.seed is None else sampling.seed)
        return sampler

    def _special(self, token: int) -> str:
        return str(self._vocab.token_to_piece(token, special=True)) if token >= 0 else ""

    def _has_bos(self, part: Part) -> bool:
        bos = self._special(self._vocab.token_bos())
        return bool(bos) and part.text.startswith(bos)


class _TextOf:
    """From tokens to text: a character that is split over tokens is held back until it is whole."""

    def __init__(self, detokenize: Callable[[list[int]], str]) -> None:
        self._detokenize = detokenize
        self._before: list[int] = []
        self._held: list[int] = []

    def add(self, token: int) -> str:
        self._held.append(token)
        text = self._text()
        if text.endswith(_REPLACEMENT) and len(self._held) < _LONGEST_HELD_BACK:
            return ""
        self._before, self._held = self._held, []
        return text

    def flush(self) -> str:
        text, self._held = self._text(), []
        return text.rstrip(_REPLACEMENT)

    def _text(self) -> str:
        # Decoded after what came before, for some vocabularies drop the space of a first word.
        if not self._held:
            return ""
        before = self._detokenize(self._before) if self._before else ""
        return self._detokenize(self._before + self._held)[len(before) :]


def _load_library() -> Any:
    try:
        from cyllama.llama import llama_cpp
    except ImportError as error:
        raise missing_engine() from error
    llama_cpp.disable_logging()
    llama_cpp.ggml_backend_load_all()
    return llama_cpp


def _threads() -> int:
    return max(1, min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1))

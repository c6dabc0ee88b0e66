"""Between text and tokens of a GGUF model: special tokens only where a template wrote them, characters always whole."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from typing import Any

from chatbot.models.chat_template import PromptPiece

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


class Decoder:
    """Decoder of tokens to text. A character that is split over tokens is held back until it is complete.

    A character that is incomplete when the model stops is dropped.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        """The characters that this token completes, often none."""
        return self._decoder.decode(self._vocabulary.bytes_of(token))


def _byte_alphabet() -> dict[str, int]:
    """The printable characters by which byte-level BPE writes bytes, as GPT-2 chose them."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}


_BYTES = _byte_alphabet()

"""What a session was about, gathered turn by turn by rule: request, outcome, decisions, open items. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chatbot.memory.exchanges import without_blocks
from chatbot.memory.redaction import redact
from stores.analysis import terms

_LONGEST = 240
_MOST = 8
_LOOKED_AT = 20_000
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s*(?=\S)|\n+")
_DECIDED = re.compile(
    r"\b(?:(?:i|we)(?:'ve|’ve| have)? (?:decided|chose|agreed|settled)|decision:|decided (?:to|on|against)|"
    r"let(?:'|’)?s (?:go with|use|stick with)|we(?:'ll| will|’ll) (?:go with|use|stick with)|going with)\b|"
    r"决定|選んだ|決めた",
    re.IGNORECASE,
)
_OPEN = re.compile(
    r"\b(?:to-?do|still (?:need|have|has) to|remains? to be|not yet (?:done|decided|clear)|left to do|open question|"
    r"next steps?|remind me|don(?:'|’)?t forget|(?:i|we) (?:need|have) to)\b|待办|还没|まだ",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Digest:
    """What is known of a session so far; lists are bounded, the latest stay."""

    turns: int = 0
    request: str = ""
    outcome: str = ""
    decisions: tuple[str, ...] = ()
    open_items: tuple[str, ...] = ()

    def extended(self, text: str, reply: str) -> Digest:
        """With one more turn. Questions decide nothing."""
        return self.joined(Digest.of(text, reply))

    @classmethod
    def of(cls, text: str, reply: str) -> Digest:
        """One turn alone."""
        said, answered = list(_sentences(text)), list(_sentences(reply))
        statements = [each for each in (*said, *answered) if not each.endswith(("?", "？"))]
        decided = [each for each in statements if _DECIDED.search(each)]
        open_ = [each for each in statements if _OPEN.search(each) and each not in decided]
        return cls(1, _most_telling(said), _most_telling(answered), _latest((), decided), _latest((), open_))

    def joined(self, later: Digest) -> Digest:
        """Both together, in their order."""
        return Digest(
            self.turns + later.turns,
            self.request or later.request,
            later.outcome or self.outcome,
            _latest(self.decisions, later.decisions),
            _latest(self.open_items, later.open_items),
        )

    def after(self, earlier: Mapping[str, Any]) -> Digest:
        """On top of an earlier summary of the same session, given as its metadata."""
        return replace(
            self,
            request=str(earlier.get("request") or "") or self.request,
            outcome=self.outcome or str(earlier.get("outcome") or ""),
            decisions=_latest(_texts(earlier.get("decisions")), self.decisions),
            open_items=_latest(_texts(earlier.get("open_items")), self.open_items),
        )


def _sentences(text: str) -> Iterator[str]:
    text, _ = redact(without_blocks(text)[:_LOOKED_AT])
    for sentence in _SENTENCE.split(text):
        if sentence and (line := " ".join(sentence.split())):
            yield line[:_LONGEST]


def _most_telling(sentences: Sequence[str]) -> str:
    return max(sentences, key=lambda each: len(set(terms(each))), default="")


def _latest(before: Iterable[str], found: Iterable[str]) -> tuple[str, ...]:
    found = list(found)
    return tuple(dict.fromkeys([*(each for each in before if each not in found), *found]))[-_MOST:]


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()

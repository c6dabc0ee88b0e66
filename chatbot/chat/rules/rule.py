"""RuleForm of a rule, and the search of a text for many rules at once.

A phrase is written in words: `forget|ignore WORDS{0,3}? rules`. The words before its first space are its heads, one of
which begins it; a space stands for anything that is no word between two words, ` ?` for that or nothing, and `WORDS`
for words of any kind, with how many follows each. A phrase matches whole words in any case. It may begin with marks:

- `! ` it counts only where an order can stand: at the beginning of a sentence, or after "you must" and the like
- `~ ` it does not count after "do not", "never", "we" and the like

Rules and texts are compared in one form, that of `plain`. Only heads are looked for at each word, and each repetition
is bounded or cannot match in two ways, so a text takes time in proportion to its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from chatbot.chat.disguises import plain

_A_WORD = re.compile(r"[^\W_]+")
_WORD = r"(?:[^\W_]{1,60}[\W_]{1,20})"
_SPACE = r"[\W_]{1,40}"
_NO_SPACE = r"[\W_]{0,40}"
_LONGEST_BEFORE = 24
_ORDER = re.compile(
    r"(?:^|[.!?:;\n\r。>|*•–—\"'(\[{#,-])[\W_\d]*$"
    r"|(?<![^\W_])(?:must|should|shall|will|please|to|and|then|also|now|always|assistant|chatbot|model"
    r"|bitte|und|dann|doch|et|puis|y|e|luego|por favor|nun|jetzt)[\W_]{1,3}$",
    re.IGNORECASE,
)
_NEGATED = re.compile(r"(?<![^\W_])(?:do not|don.?t|never|should not|must not|we|i|they)\W$", re.IGNORECASE)


@dataclass(frozen=True)
class Phrase:
    """Text that follows one of the heads, and where the heads count."""

    heads: frozenset[str]
    following: str
    """Pattern of what follows a head. It is compiled for the first text with one: for all it would take long."""
    is_order: bool
    is_not_negated: bool

    @cached_property
    def tail(self) -> re.Pattern[str]:
        """The pattern, compiled."""
        return re.compile(self.following, re.IGNORECASE)

    def matches(self, text: str, begin: int, end: int) -> bool:
        """Return whether `text` holds the phrase, with a head between `begin` and `end`."""
        if not self.tail.match(text, end):
            return False
        before = text[max(0, begin - _LONGEST_BEFORE) : begin]
        if self.is_order and not _ORDER.search(before):
            return False
        return not (self.is_not_negated and _NEGATED.search(before))


@dataclass(frozen=True)
class RuleForm:
    """Signs and words as they stand in a text; `script` holds the ranges of letters of which it must have one."""

    text: str
    script: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, compiled for the first text that may have it."""
        return re.compile(plain(self.text), re.IGNORECASE | re.MULTILINE)

    @cached_property
    def letters(self) -> re.Pattern[str]:
        """One letter of the script."""
        return re.compile(f"[{self.script}]")

    def is_in(self, text: str) -> bool:
        """Return whether `text` has the form."""
        if self.script and (text.isascii() or not self.letters.search(text)):
            return False
        return self.pattern.search(text) is not None


class Rule(NamedTuple):
    """One rule: its name in a receipt, and what it looks for."""

    name: str
    phrases: tuple[Phrase, ...] = ()
    form: RuleForm | None = None


class RuleTable:
    """Rules in their order, which find the first that a text breaks."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self._forms = [(at, rule.form) for at, rule in enumerate(self.rules) if rule.form]
        self._phrases: dict[str, list[tuple[int, Phrase]]] = {}
        for at, rule in enumerate(self.rules):
            for phrase_ in rule.phrases:
                for head in phrase_.heads:
                    self._phrases.setdefault(head, []).append((at, phrase_))

    def broken(self, text: str) -> str | None:
        """Return the name of the first rule that `text`, one of the readings, breaks; None for none."""
        first = len(self.rules)
        for word in _A_WORD.finditer(text):
            for at, phrase_ in self._phrases.get(word[0].casefold(), ()):
                if at < first and phrase_.matches(text, word.start(), word.end()):
                    first = at
        for at, form_ in self._forms:
            if at < first and form_.is_in(text):
                first = at
        return self.rules[first].name if first < len(self.rules) else None


def phrase(name: str, *patterns: str) -> Rule:
    """A rule about words: one of `patterns` among them."""
    return Rule(name, tuple(map(_phrase, patterns)))


def form(name: str, *patterns: str, script: str = "") -> Rule:
    """A rule about signs and words as they stand in a plain text, where `…` is `...`.

    `script` holds the ranges of its letters: a text without any of them is not searched.
    """
    return Rule(name, (), RuleForm("|".join(patterns), script))


def _phrase(pattern: str) -> Phrase:
    mark = pattern[0] if pattern[:2] in {"! ", "~ "} else ""
    heads, _, tail = plain(pattern.removeprefix(f"{mark} ")).partition(" ")
    if not tail or not all(map(_A_WORD.fullmatch, heads.split("|"))):
        raise ValueError(f"{pattern!r:.60}: a phrase begins with plain words, followed by a space and more")
    spaced = tail.rstrip().replace("WORDS", _WORD).replace(" ?", _NO_SPACE).replace(" ", _SPACE)
    return Phrase(
        frozenset(head.casefold() for head in heads.split("|")),
        rf"{_SPACE}(?:{spaced})(?![^\W_])",
        mark == "!",
        mark == "~",
    )


_DATA = r"(?:data|secrets?|history|conversation|passwords?|prompt|messages|context)"
_PLACEHOLDER = (
    r"(?:\{|%7b|<[a-z]|\[[a-z]|\$[a-z{]|\.\.\.|=(?=[\s)\"'])"
    rf"|[=/](?:(?:the|your|user|all|chat)[_-]?)?{_DATA}(?![a-z])|=(?-i:[A-Z]{{2,20}}_[A-Z_]{{2,30}}))"
)
_URL = r"<?(?:https?:)?//"

FORMS: tuple[Rule, ...] = (
    form(
        "tool-forgery",
        r"\"(?:tool_calls?|function_call|tool_use)\"\s{0,20}:",
        r"\"(?:name|tool|function)\"\s{0,20}:\s{0,20}\"[^\"]{1,80}\"\s{0,20},\s{0,20}"
        r"\"(?:arguments|parameters|input|args)\"\s{0,20}:",
        r"\"(?:arguments|parameters)\"\s{0,20}:\s{0,20}\{[^{}]{0,200}\}\s{0,20},\s{0,20}\"(?:name|tool|function)\"",
        r"<\s{0,9}/?\s{0,9}(?:\w{1,20}:)?(?:tool_calls?|function_calls?|tool_use|invoke|tool_response|tool_result)\b",
        r"<\s{0,9}function\s{0,9}=",
        r"\"(?:name|tool|function)\"\s{0,20}:\s{0,20}\"[^\"]{1,80}\"\s{0,20},\s{0,20}\"args\"\s{0,20}:",
        r"<\|python_tag\|>|\[/?TOOL_CALLS\]|(?<![\w.])functions\.\w{1,60}\s{0,3}\(\s{0,3}\{",
        r"^\s{0,20}action\s{0,9}:[^\n]{1,80}\n\s{0,20}action[ _]input\s{0,9}:",
    ),
    form(
        "forged-frame",
        r"[-=#*<\[({_~]\s{0,9}(?:begin|start|end|new|end of)[ _](?:of[ _])?(?:system|developer|admin|hidden)[ _]"
        r"(?:prompt|message|instructions?)",
        r"^\s{0,9}<\s{0,9}(?:system|instructions?|developer|admin|system[_-]prompt)\s{0,9}>",
        r"<(system|instructions?|developer|admin|system[_-]prompt)>[^<]{1,400}</\1>",
        r"\[\s{0,9}(?:system|developer|admin)[ _-](?:override|message|prompt|notice|update|command)[^\]\n]{0,40}\]",
        r"[-=#*~%]{2,40}\s{0,9}(?:system|developer|admin)[ _](?:override|message|prompt|notice)",
        r"\"role\"\s{0,9}:\s{0,9}\"(?:system|developer|assistant|tool)\"\s{0,9},\s{0,9}\"content\"",
        r"^\s{0,9}(?:system )?override\s{0,3}:",
        r"<!--\s{0,9}(?:assistant|ai|system|model|llm|bot|note to)(?![\w])",
        r"^\s{0,9}#{1,6}\s{0,9}instructions?\s{0,3}:?[^\n]{0,200}\n(?:[^\n]{0,400}\n){0,10}?\s{0,9}#{1,6}\s{0,9}response",
        r"(?-i:END OF (?:DATA|MEMORY|MEMORIES|CONTEXT|DOCUMENT|INPUT|USER INPUT))",
        r"(?<!\w)(?:memory|memories|context|memory block|data block|stored data) (?:ends|end|is over|stops)"
        r" here(?!\w)",
        r"(?-i:(?:BEGIN|START|END)(?: OF)?(?: NEW)? (?:SYSTEM|DEVELOPER|ADMIN) (?:PROMPT|MESSAGE|INSTRUCTIONS?))",
    ),
    form(
        "exfiltration-link",
        rf"!\[[^\]\n]{{0,200}}\]\(\s{{0,9}}{_URL}[^)\s?&#]{{1,500}}[?&#][^)\n]{{0,300}}?{_PLACEHOLDER}",
        rf"\[[^\]\n]{{0,200}}\]\(\s{{0,9}}{_URL}[^)\s]{{1,500}}?(?:\{{|%7b|<[a-z]|\.\.\.|=\[)",
        rf"<img\b[^>]{{0,200}}?src\s{{0,9}}=\s{{0,9}}[\"']?{_URL}[^>\s?&]{{1,500}}[?&][^>\s]{{0,200}}?{_PLACEHOLDER}",
        rf"^\s{{0,20}}\[[^\]\n]{{1,80}}\]:\s{{0,9}}{_URL}[^\s]{{1,500}}?(?:\{{|%7b|\.\.\.)",
        r"\]\(\s{0,9}(?:javascript|data|vbscript):",
    ),
)

"""What counts as a secret: the rules of gitleaks, as the package secretscreen carries them, and ours beside them.

Gitleaks reads files of code and knows some two hundred formats. What people say to a chat ("my password is …"), what
they paste from a terminal, and the keys of those who sell models are ours to know. A rule is tried where one of its
keywords stands, and compiled when it is first tried. No rule is kept from a text that it could find something in.
"""

from __future__ import annotations

import math
import re
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from operator import itemgetter
from typing import Any

_LONG = 16
_SHORT = frozenset(
    [
        "curl-auth-header",
        "curl-auth-user",
        "dropbox-api-token",
        "generic-api-key",
        "hashicorp-tf-password",
        "jwt-base64",
        "kubernetes-secret-yaml",
        "linkedin-client-id",
        "nuget-config-password",
        "private-key",
        "slack-app-token",
        "slack-legacy-token",
        "slack-legacy-workspace-token",
        "sumologic-access-id",
        "authorization",
        "cookie",
        "unended-private-key",
        "command-password",
        "password",
    ]
)
"""Rules that may find something in a text whose words are all shorter than `_LONG`."""
_WHOLE = frozenset({"jwt-base64", "microsoft-teams-webhook"})
"""Rules whose groups are not the secret, but mere parts of it."""
_TRANSLATED = {
    "(?i)": "",
    r"\z": r"\Z",
    # It names what stands before the keyword, costs fifty steps a character, and changes nothing in what is found.
    r"[\w.-]{0,50}?": "",
    # A regular expression of Go never goes back; ours would take minutes where a text says `curl` often.
    r"(?:.*?|.*?(?:[\r\n]{1,2}.*?){1,5})": r"[\s\S]{0,500}?",
    r"(?:.*|.*(?:[\r\n]{1,2}.*){1,5})": r"[\s\S]{0,500}?",
    # In a sentence a key is followed by a comma, a full stop or a bracket, too.
    r"""(?:[\x60'"\s;]|\\[nr]|$)""": r"(?![\w+/=(\[-]|\.\w)",
}

_KEY_OF_A_PROVIDER = (
    r"sk-(?=[\w-]{0,150}?(?=[A-Za-z]{0,40}(?:\d|[a-z][A-Z]))[A-Za-z0-9]{12})[\w-]{16,}"  # OpenAI, Anthropic, DeepSeek …
    r"|(?:gsk_|hf_|fw_|r8_|xai-|csk-|jina_|nvapi-|tvly-|fc-)[A-Za-z0-9](?=[\w-]*?[A-Za-z0-9]{16})[\w-]{19,}"
    r"|(?:cbt_|tgp_v1_|lsv2_|pa-|dckr_pat_|sbp_|ya29\.)(?=[\w-]*?[A-Za-z0-9]{12})(?=[\w-]*\d)[\w-]{26,}"
    r"|xox[cd]-[\w%+/=-]{20,}"
)
_LABEL = (
    r"(?:(?:api|access|auth|bearer|bot|client|secret|private|refresh|session|personal|account|app|deploy|signing|master)"
    r"[\s_-]*(?:access[\s_-]*)?(?:key|token|secret)|\bmy(?:\s[\w.'-]+){0,4}?\s(?:key|token|secret))\b"
)
_FOR_WHAT = r"(?:\s(?:for|of|on|to|at)(?:\s[\w.@'-]+){1,5}?)?"
_PASSWORD = r"(?:pass(?:word|wd|phrase|code|wort)|(?<![a-z])pwd|(?<=_)pass\b)"  # noqa: S105 -- the word, not one
_MARK = r"""["'`*_]{0,3}"""
_PLACEHOLDER = r"(?!\$\{|\$[A-Z_]+\b|\{\{|<|%[A-Z]|\*{3}|\[redacted)"
_SPOKEN_OF = (
    r"(?!\d[\d-]*\W+(?:or\s\w+\s)?(?:char|digit|letter|symbol|day|week|month|year|bit|time))"
    r"(?!(?:sha|md|base|aes|argon|utf)-?\d)"
)
_OURS: tuple[Mapping[str, Any], ...] = (
    {
        "id": "provider-key",
        "keywords": [
            "sk-",
            "gsk_",
            "hf_",
            "fw_",
            "r8_",
            "xai-",
            "csk-",
            "jina_",
            "nvapi-",
            "tvly-",
            "fc-",
            "cbt_",
            "tgp_v1_",
            "lsv2_",
            "pa-",
            "dckr_pat_",
            "sbp_",
            "ya29.",
            "xoxc-",
            "xoxd-",
        ],
        "regex": rf"(?<![\w-])({_KEY_OF_A_PROVIDER})",
        "entropy": 3,
    },
    {"id": "telegram-bot-token", "keywords": [":aa"], "regex": r"(?<![\w:])(\d{6,12}:AA[\w-]{33})(?![\w-])"},
    {
        "id": "authorization",
        "keywords": ["authorization", "bearer"],
        "regex": r"(?i)(?:\bauthorization\W{1,6}(?:bearer|basic|token|digest|apikey)\s+([\w.~+/=:-]{8,})"
        r"|\bauthorization\W{1,6}(?=\S*\d)([\w.~+/=-]{16,})"
        r"|\bbearer\s+(?=\S*\d)([\w.~+/=-]{16,}))",
    },
    {
        "id": "cookie",
        "keywords": ["cookie"],
        "regex": r"""(?i)\bcookie["']?\s*[:=\s]\s*["']?((?:[\w.%-]+=[^\s;"']*;\s*)*[\w.%-]+=[^\s;"']{8,}"""
        r"""(?:;\s*[\w.%-]+=[^\s;"']*)*)""",
    },
    {
        # A text that was cut off does not reach the end of its key.
        "id": "unended-private-key",
        "keywords": ["-----begin"],
        "regex": r"-----BEGIN[ A-Z0-9_-]{0,100}PRIVATE KEY(?: BLOCK)?-----[\s\S]+?(?:KEY(?: BLOCK)?-----|\Z)",
    },
    {
        "id": "command-password",
        "keywords": ["mysql", "mariadb", "sshpass", "redis-cli", "--pass"],
        "regex": rf"""\b(?:mysql|mariadb)[\w-]*\b[^|;\n]{{0,200}}?\s-p["']?{_PLACEHOLDER}([^\s"']{{3,}})"""
        rf"""|\bsshpass\s+-p\s*["']?{_PLACEHOLDER}([^\s"']{{3,}})"""
        rf"""|\bredis-cli\b[^|;\n]{{0,200}}?\s-a\s+["']?{_PLACEHOLDER}([^\s"']{{3,}})"""
        rf"""|--pass(?:word|wd|phrase)?\s+["']?(?=[^\s"']*\d){_PLACEHOLDER}([^\s"']{{4,}})""",
    },
    {
        "id": "told-key",
        "keywords": ["key", "token", "secret"],
        "regex": rf"(?i){_LABEL}{_FOR_WHAT}{_MARK}\s*(?:\bis\b|\bwas\b|[:=])(?:\snow)?\s*{_MARK}"
        r"(?=[\w.~+/=-]*\d)(?=[\w.~+=-]*?[a-z0-9]{12})([\w~+=][\w.~+/=-]{15,})(?![(\[])",
        "entropy": 3,
    },
    {
        "id": "password",
        "keywords": ["passw", "passp", "passc", "pwd", "_pass"],
        "regex": rf"(?i){_PASSWORD}\b{_FOR_WHAT}\s(?:is|was|ist)(?:\snow)?\s+"
        rf"""(?:["'`“]([^"'`”\n]{{4,80}})["'`”]"""
        rf"""|{_SPOKEN_OF}(?=\S*(?:\d|\w[!@#$%^&*+=~]\w)|\w{{18}})([^\s"'`,;]{{3,}}[^\s"'`,;.!?)]))""",
    },
    {
        "id": "password",
        "keywords": ["passw", "passp", "passc", "pwd", "_pass"],
        "regex": rf"""(?i){_PASSWORD}{_MARK}{_FOR_WHAT}\s*[:=]\s*{_MARK}\s?{_PLACEHOLDER}"""
        r"""(?=[^\s"',;]*[\d!@#$%^&*?])([^\s"',;]{4,})""",
    },
)


class Rule:
    """One rule, in the form that gitleaks writes them in."""

    def __init__(self, written: Mapping[str, Any]) -> None:
        self.id: str = written["id"]
        self.keywords = frozenset(map(str.lower, written["keywords"]))
        self._source: str = written["regex"]
        self._entropy: float = written.get("entropy", 0)
        self._group: int = written.get("secretGroup", 0)
        allowed = [each for each in written.get("allowlists", []) if "condition" not in each]
        self._stop_words = [word.lower() for each in allowed for word in each.get("stopwords", ())]
        self._harmless = [each for each in allowed if each.get("regexes") and each.get("regexTarget") != "line"]

    @property
    def pattern(self) -> re.Pattern[str]:
        """What the rule looks for, with the secret in one of its groups where it is not the whole."""
        return _compiled(self._source)

    def find(self, text: str) -> set[str]:
        """The secrets in the text."""
        return {
            secret
            for match in self.pattern.finditer(text)
            if (secret := self._secret(match)) and self._is_likely(secret, match[0])
        }

    def _secret(self, match: re.Match[str]) -> str:
        if self._group:
            return match[self._group] or ""
        return match[0] if self.id in _WHOLE else next((group for group in match.groups() if group), match[0])

    def _is_likely(self, secret: str, match: str) -> bool:
        lowered = secret.lower()
        if _entropy(secret) < self._entropy or any(word in lowered for word in self._stop_words):
            return False
        return not any(
            _compiled(pattern).search(match if each.get("regexTarget") == "match" else secret)
            for each in self._harmless
            for pattern in each["regexes"]
        )


def candidates(lowered: str) -> Iterable[Rule]:
    """The rules that may find something in a text, given in lower case.

    Most need a word of sixteen characters, which few sentences hold: those are spared the search for their keywords.
    """
    is_long = max(map(len, lowered.split()), default=0) >= _LONG
    found = [rule for keyword, those in _by_keyword(is_long) if keyword in lowered for rule in those]
    return [rule for _, rule in sorted(set(found), key=itemgetter(0))]


@cache
def rules() -> tuple[Rule, ...]:
    """All rules, in the order in which they are tried."""
    theirs = tomllib.loads(files("secretscreen").joinpath("gitleaks.toml").read_text("utf-8"))["rules"]
    return tuple(Rule(rule) for rule in (*theirs, *_OURS) if rule.get("regex") and rule.get("keywords"))


@cache
def _by_keyword(is_long: bool) -> tuple[tuple[str, tuple[tuple[int, Rule], ...]], ...]:  # noqa: FBT001 -- the key of a cache
    found: dict[str, list[tuple[int, Rule]]] = {}
    for place, rule in enumerate(rules()):
        if is_long or rule.id in _SHORT:
            for keyword in rule.keywords:
                found.setdefault(keyword, []).append((place, rule))
    return tuple((keyword, tuple(those)) for keyword, those in found.items())


@cache
def _compiled(source: str) -> re.Pattern[str]:
    """A pattern in the dialect of Go, compiled in ours."""
    flags = re.IGNORECASE if "(?i)" in source else 0
    for theirs, ours in _TRANSLATED.items():
        source = source.replace(theirs, ours)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(source, flags)


def _entropy(text: str) -> float:
    """Shannon's entropy of the characters, in bits."""
    return -sum(count / len(text) * math.log2(count / len(text)) for count in Counter(text).values())

"""Redaction of secrets, before anything is stored; and the rules that find them.

Gitleaks scans source code and knows about two hundred formats. Our rules add phrases of chats ("my password is …"),
text pasted from a terminal, and keys of model providers. A rule is tried only on texts with one of its keywords, and
compiled on first use. No rule is skipped for a text that it could match.
"""

import json
import math
import re
import tomllib
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property, partial
from importlib.util import find_spec
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from chatbot.stores.fields import texts_in

_LOCKABLE = ("door", "gate", "alarm", "lock", "locker", "access", "safe", "entry", "security", "unlock")
_WHOLE = frozenset({"jwt-base64", "microsoft-teams-webhook"})
"""Rules whose groups are only parts of the secret."""
_TRANSLATED = {
    "(?i)": "",
    r"\z": r"\Z",
    # This prefix costs fifty steps a character and does not change the matches.
    r"[\w.-]{0,50}?": "",
    # Go's regular expressions never backtrack; Python's would take hours for a text with many spaces, or many `curl`.
    r"(?:[ \t]*(?:\||>[-+]?)\s+)?[ \t]*": r"(?:[ \t]*+(?:\||>[-+]?)\s++)?[ \t]*+",
    r"(?:.*?|.*?(?:[\r\n]{1,2}.*?){1,5})": r"[\s\S]{0,500}?",
    r"(?:.*|.*(?:[\r\n]{1,2}.*){1,5})": r"[\s\S]{0,500}?",
    # In a sentence a key is followed by a comma, a full stop or a bracket, too.
    r"""(?:[\x60'"\s;]|\\[nr]|$)""": r"(?![\w+/=(\[-]|\.\w)",
}

_NAME = re.compile(r'^id = "([^"]+)"$', re.MULTILINE)
_KEYWORDS = re.compile(r"^keywords = \[(.*?)\]", re.MULTILINE | re.DOTALL)
_QUOTED = re.compile(r'"([^"]+)"')
_REST = re.compile(r"(?:(?<=[\w-])[\w-]+(?:\.[\w-]+)*)?", re.ASCII)
"""The rest of a token, of which a rule knows only an earlier, shorter form."""
_SHORT = 3
"""Longest of the keywords that most texts contain, such as `ey`."""

_WITH_LETTERS = (
    "gsk_|hf_|fw_|r8_|xai-|csk-|jina_|nvapi-|tvly-|fc-|sk_|pk_|re_|secret_|ntn_|napi_|nfp_|rnd_|whsec_|figd_|vcp_|phx_"
    "|pcsk_|tskey-|NRAK-|ATBB|syt_|cio|EAA"
)
_LONG = (
    "cbt_|tgp_v1_|lsv2_|pa-|dckr_pat_|dckr_oat_|sbp_|sb_secret_|ya29.|1//0|AQ.Ab|GOCSPX-|ATATT3x|ATCTT3x|sntrys_|sk.ey"
    "|pat-na1-|pat-eu1-"
)
KEY_PREFIXES = tuple(f"sk-|pk-|rk-|xox|dapi|ghp_|gho_|glpat-|AIza|AKIA|eyJ|{_WITH_LETTERS}|{_LONG}".split("|"))
"""Prefixes of keys. In a provider's error the prefix is enough, because the key may be cut off."""
_KEY_OF_A_PROVIDER = (
    r"(?:sk|pk|rk)-(?=[\w-]{0,150}?(?=[A-Za-z]{0,40}(?:\d|[a-z][A-Z]))[A-Za-z0-9]{12})[\w-]{16,}"
    rf"|(?:{_WITH_LETTERS})(?=[\w-]*?(?=[A-Za-z]{{0,40}}(?:\d|[a-z][A-Z]))[A-Za-z0-9]{{16}})[\w-]{{20,}}"
    rf"|(?:{_LONG})(?=[\w-]*?[A-Za-z0-9]{{12}})(?=[\w-]*\d)[\w-]{{26,}}(?:=\w{{8}})?"
    r"|xox[cd]-[\w%+/=-]{20,}"
)
_LABEL = (
    r"(?:(?:api|access|auth|bearer|bot|client|secret|private|refresh|session|personal|account|app|deploy|signing|master)"
    r"[\s_-]*(?:access[\s_-]*)?(?:key|token|secret)(?:-data)?|\bmy(?u:(?:\s[\w.'-]+){0,4}?)\s(?:key|token|secret))\b"
)
_FOR_WHAT = r"(?:\s(?:for|of|on|to|at)(?u:\s[\w.@'-]+){1,5}?)?"
_PASSWORD = r"(?:pass(?:word|wd|phrase|code|wort)|(?<![a-z])pwd|(?<=_)pass\b)"  # noqa: S105 -- the word, not one
_MARK = r"""["'`*_]{0,3}"""
_NESTED = r"""(?:[\[{]\s*(?:["']?[\w.-]{1,40}["']?\s*:\s*)?){0,3}"""
_PLACEHOLDER = r"(?!\$\{|\$[A-Z_]+\b|\{\{|<|%[A-Z]|\*{3}|\[redacted)"
_NOT_DESCRIBED = (
    r"(?!\d[\d-]*\W+(?:or\s\w+\s)?(?:char|digit|letter|symbol|day|week|month|year|bit|time))"
    r"(?!(?:sha|md|base|aes|argon|utf)-?\d)"
)
_OURS: tuple[Mapping[str, Any], ...] = (
    {"id": "provider-key", "keywords": KEY_PREFIXES, "regex": rf"(?<![\w-])({_KEY_OF_A_PROVIDER})", "entropy": 3},
    {"id": "telegram-bot-token", "keywords": [":aa"], "regex": r"(?<!\d)(?<!\d:)(\d{6,12}:AA[\w-]{33})(?![\w-])"},
    {"id": "url-password", "keywords": ["://"], "regex": r"(?<=://)[^\s/:@]*:([^\s/]+)(?=@)"},
    {
        "id": "service-key",
        "keywords": ["pat", "-us", "00d", "/api/webhooks/", "sig=", "nature="],
        "regex": r"(?<![\w-])(pat\w{14}\.[0-9a-f]{64}|[0-9a-f]{32}-us\d{1,2}|00D\w{12,15}![\w.]{80,})(?![\w-])"
        r"|(?i:discord(?:app)?\.com/api/webhooks/)\d+/([\w-]{40,})|(?i:[?&](?:[\w-]+-)?sig(?:nature)?=)([\w%+/=-]{20,})",
    },
    {
        "id": "authorization",
        "keywords": ["authorization", "bearer"],
        "regex": r"(?i)(?:(?<!redacted: )\bauthorization\W{1,6}(?:bearer|basic|token|digest|apikey)\s+([\w.~+/=:-]{8,})"
        r"|(?<!redacted: )\bauthorization\W{1,6}(?=\S{0,200}\d)([\w.~+/=-]{16,})"
        r"|\bbearer\s+(?=\S{0,200}\d)([\w.~+/=-]{16,}))",
    },
    {
        "id": "cookie",
        "keywords": ["cookie"],
        "regex": r"""(?i)\bcookie["']?(?:\s*[:=]\s*|\s+)["']?((?:[\w.%-]+=[^\s;"']*;\s*)*[\w.%-]+=[^\s;"']{8,}"""
        r"""(?:;\s*[\w.%-]+=[^\s;"']*)*)""",
    },
    {
        # A text that was cut off may lack the end of the key.
        "id": "unended-private-key",
        "keywords": ["-----begin"],
        "regex": r"-----BEGIN[ A-Z0-9_-]{0,100}PRIVATE KEY(?: BLOCK)?-----[\s\S]+?(?:KEY(?: BLOCK)?-----|\Z)",
    },
    {
        "id": "command-password",
        "keywords": ["mysql", "mariadb", "sshpass", "redis-cli", "--pass", "machine "],
        "regex": rf"""(?<![\w-])(?:mysql|mariadb)[\w-]*+[^|;\n]{{0,200}}?\s-p["']?{_PLACEHOLDER}([^\s"']{{3,}})"""
        rf"""|\bsshpass\s+-p\s*["']?{_PLACEHOLDER}([^\s"']{{3,}})"""
        rf"""|\bredis-cli\b[^|;\n]{{0,200}}?\s-a\s+["']?{_PLACEHOLDER}([^\s"']{{3,}})"""
        rf"""|\bmachine\s+\S+\s+login\s+\S+\s+password\s+{_PLACEHOLDER}(\S{{3,}})"""
        rf"""|--pass(?:word|wd|phrase)?\s+["']?(?=[^\s"']*\d){_PLACEHOLDER}([^\s"']{{4,}})""",
    },
    {
        "id": "told-key",
        "keywords": ["key", "token", "secret"],
        "regex": rf"(?i){_LABEL}{_FOR_WHAT}{_MARK}\s*(?:\bis\b|\bwas\b|[:=])(?:\snow)?\s*{_MARK}(?:base64:)?"
        r"(?=[\w.~+/=-]{0,200}\d)(?=[\w.~+=-]{0,200}?[a-z0-9]{12}|[\w+/]{40,200}=)"
        r"((?:[\w~+=]|/(?=[\w+/]{39,200}=))[\w.~+/=-]{15,})(?![(\[])",
        "entropy": 3,
    },
    {
        "id": "pin",
        "keywords": ["pin", "puk", *(f"{of} {what}" for of in _LOCKABLE for what in ("code", "combination"))],
        "regex": rf"(?i)\b(?:(?:pin|puk)(?:\s?(?:code|number))?|(?:{'|'.join(_LOCKABLE)}) (?:code|combination))"
        rf"{_FOR_WHAT}\s*(?:\bis\b|\bwas\b|[:=])"
        r"(?:\snow)?\s*(?u:(\d(?:[ -]?\d){3,9}))(?![\w-])",
    },
    {
        "id": "password",
        "keywords": ["passw", "passp", "passc", "pwd", "_pass"],
        "regex": rf"(?i){_PASSWORD}\b{_FOR_WHAT}\s(?:is|was|ist)(?:\snow)?\s+"
        rf"""(?:["'`“]([^"'`”\n]{{4,80}})["'`”]"""
        rf"""|{_NOT_DESCRIBED}(?=\S*(?:\d|\w[!@#$%^&*+=~]\w)|\w{{18}})([^\s"'`,;]{{3,}}[^\s"'`,;.!?)]))"""
        rf"""|{_PASSWORD}{_MARK}{_FOR_WHAT}\s*[:=]\s*{_PLACEHOLDER}{_NESTED}{_MARK}\s?{_PLACEHOLDER}"""
        r"""(?=[^\s"',;]{0,200}[\d!@#$%^&*?])([^\s"',;]{4,})""",
    },
)


_BY_NAME = frozenset({"authorization", "cookie", "password", "pin", "told-key"})
"""Rules for a secret that follows its name."""
_NAMES = frozenset(keyword for rule in _OURS if rule["id"] in _BY_NAME for keyword in rule["keywords"])


class SecretRule:
    """One rule in gitleaks' format, parsed on first use."""

    def __init__(self, id_: str, keywords: Iterable[str], read: Callable[[], Mapping[str, Any]]) -> None:
        self.id = id_
        self.keywords = frozenset(map(str.lower, keywords))
        self._read = read

    @cached_property
    def _written(self) -> Mapping[str, Any]:
        return self._read()

    @cached_property
    def _allowed(self) -> Sequence[Mapping[str, Any]]:
        return [each for each in self._written.get("allowlists", ()) if "condition" not in each]

    @property
    def pattern(self) -> re.Pattern[str]:
        """Compiled pattern; a group holds the secret if it is not the whole match."""
        return _compile_go(self._written["regex"])

    def find(self, text: str) -> list[tuple[int, int]]:
        """Return where the secrets of the text begin and end, in order."""
        return [
            (match.start(group), next(_REST.finditer(text, match.end(group))).end())
            for match in self.pattern.finditer(text)
            if match[group := self._group(match)] and self._is_likely(match[group], match[0])
        ]

    def _group(self, match: re.Match[str]) -> int:
        if group := self._written.get("secretGroup"):
            return int(group)
        return 0 if self.id in _WHOLE else next((n for n, each in enumerate(match.groups(), 1) if each), 0)

    def _is_likely(self, secret: str, match: str) -> bool:
        lowered = secret.lower()
        shares = [count / len(secret) for count in Counter(secret).values()]
        stop_words = (word for each in self._allowed for word in each.get("stopwords", ()))
        entropy = -sum(share * math.log2(share) for share in shares)  # Shannon's, in bits
        if entropy < self._written.get("entropy", 0) or any(word in lowered for word in stop_words):
            return False
        return not any(
            _compile_go(pattern).search(match if each.get("regexTarget") == "match" else secret)
            for each in self._allowed
            if each.get("regexTarget") != "line"
            for pattern in each.get("regexes", ())
        )


def candidates(lowered: str) -> Sequence[SecretRule]:
    """Return the rules that may find something in a text, given in lower case."""
    keyed = _rules_by_keyword() if _any_keyword().search(lowered) else _rules_by_keyword(longest=_SHORT)
    return list(dict.fromkeys(rule for keyword, rule in keyed if keyword in lowered))


@cache
def rules() -> tuple[SecretRule, ...]:
    """Return all rules, in the order in which they are tried."""
    package = find_spec("secretscreen")  # importing it is slow, and only its file of rules is needed
    if package is None or package.origin is None:
        raise ModuleNotFoundError("secretscreen is not installed: without it no secrets are detected")
    _, *theirs = Path(package.origin).with_name("gitleaks.toml").read_text("utf-8").split("\n[[rules]]\n")
    ours = [SecretRule(rule["id"], rule["keywords"], partial(dict, rule)) for rule in _OURS]
    return (*filter(None, map(_rule_of, theirs)), *ours)


def _rule_of(text: str) -> SecretRule | None:
    """Return a rule of gitleaks, from its part of the file; None for one that only checks file names."""
    name, keywords = _NAME.search(text), _KEYWORDS.search(text)
    if name is None or keywords is None or "\nregex = " not in text:
        return None
    return SecretRule(
        name[1],
        _QUOTED.findall(keywords[1]),
        lambda: tomllib.loads(text.replace("[[rules.allowlists]]", "[[allowlists]]")),
    )


@cache
def _rules_by_keyword(longest: int = 1_000) -> tuple[tuple[str, SecretRule], ...]:
    return tuple((keyword, rule) for rule in rules() for keyword in rule.keywords if len(keyword) <= longest)


@cache
def _any_keyword() -> re.Pattern[str]:
    """Return a pattern of all keywords but short ones, by first character: a third of the time of a loop over them."""
    keywords = sorted({keyword for keyword, _ in _rules_by_keyword() if len(keyword) > _SHORT})
    groups = [(begin, [re.escape(each[1:]) for each in same]) for begin, same in groupby(keywords, itemgetter(0))]
    return re.compile("|".join(f"{re.escape(begin)}(?:{'|'.join(ends)})" for begin, ends in groups))


@cache
def _compile_go(source: str) -> re.Pattern[str]:
    """Compile a pattern in the dialect of Go, to which a letter of another script is no part of a word."""
    flags = re.ASCII | re.IGNORECASE if "(?i)" in source else re.ASCII
    for theirs, ours in _TRANSLATED.items():
        source = source.replace(theirs, ours)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(source, flags)


_MASK = "[redacted]"
_HOLE = "\udfff"
"""Mark in place of a secret while a text is redacted: a lone surrogate, which no storable text contains."""
_SHORTEST_SECRET = 6
_NAMED = (
    r"(?:(?i:(?<=bearer )|(?<=basic ))(?!\[redacted)[^\s\"',]+"
    r"|(?i:(?<=key=)|(?<=token=)|(?<=api_key:)|(?<=api-key:))\s*(?!\[redacted)[^\s\"',&]+)"
)
"""A secret of any form after a word that names it, such as `key=`."""
_BEGINS_LIKE_A_KEY = (
    rf"(?<![\w-])(?:{'|'.join(map(re.escape, KEY_PREFIXES))})"
    r"(?=[A-Za-z_.-]{0,200}+[\d*])[\w.*-]{8,}"  # short, or masked in part
    r"|(?<![\w-])[\w-]{2,}\*{3,}[\w*-]*"
)
_LONG_SECRET = 8
_MOST_REPEATED = 100
"""Maximum secrets of one kind, the longest ones, that are looked for in the rest of a text: each costs a pass."""
_NAMED_ABOVE = 3
"""Keys above a value, the nearest ones, that may name it as a secret."""
_INVISIBLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]")
_PLAIN = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | dict.fromkeys(map(ord, "\u00a0\u202f\u3000"), " ")
"""Signs and spaces of other widths with those that rules know, one for one."""

Value = TypeVar("Value")


def redact(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the text with `[redacted: kind]` in place of each secret, and the kinds that were found.

    If a secret is interspersed with invisible characters, the text loses them all: storing it would remove some anyway.
    """
    found, kinds = _redact(text)
    if (plain := _INVISIBLE.sub("", found)) != found:
        plain, more = _redact(plain)
        return (plain, tuple(dict.fromkeys(kinds + more))) if more else (found, kinds)
    return found, kinds


def redact_beginning(text: str, most: int) -> str:
    """Return a text without secrets; of one longer than `most` half as much, as the end may be a part of a secret."""
    clean, _ = redact(text[:most])
    return clean if len(text) <= most else clean[: -most // 2]


def _redact(text: str) -> tuple[str, tuple[str, ...]]:
    if len(text) < 8:
        return text, ()
    kinds: list[str] = []
    plain = text.translate(_PLAIN)
    for rule in candidates(plain.lower()):
        if places := rule.find(plain):
            kinds.append(rule.id)
            text = _without(text, places, f"[redacted: {rule.id}]")
            plain = text.translate(_PLAIN)
    return text, tuple(dict.fromkeys(kinds))


def _without(text: str, places: Sequence[tuple[int, int]], mark: str) -> str:
    """Replace the secrets at these places, and wherever they recur, by the mark; a short one only as a whole word."""
    borders = [0, *chain(*places), len(text)]
    left = _HOLE.join(text[begin:end] for begin, end in zip(borders[::2], borders[1::2], strict=True))
    for secret in sorted({text[begin:end] for begin, end in places}, key=len, reverse=True)[:_MOST_REPEATED]:
        if len(secret) >= _LONG_SECRET:
            left = left.replace(secret, _HOLE)
        else:
            left = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", _HOLE, left)
    return left.replace(_HOLE, mark)


def redact_all(value: Value) -> tuple[Value, tuple[str, ...]]:
    """Redact a text, or every text in a mapping or list, at any depth and including keys of mappings.

    A value is replaced as a whole if a key above it, such as `password`, names it as a secret.
    """
    together = "\n".join(texts_in(value))  # one check of all texts costs less than one of each
    is_plain = "://" not in together and _INVISIBLE.search(together) is None
    if is_plain and not candidates(together.translate(_PLAIN).lower()):
        return value, ()
    kinds: list[str] = []

    @cache  # for this value only: it holds secrets
    def kinds_named(name: str, text: str) -> tuple[str, ...]:
        named = f"{name}: {text.translate(_PLAIN)}"
        return tuple(rule.id for rule in rules() if rule.id in _BY_NAME and rule.find(named))

    def clean(part: Any, names: tuple[str, ...] = ()) -> Any:
        if isinstance(part, Mapping):
            return {
                clean(key): clean(inner, (*names, *_secret_name(key))[-_NAMED_ABOVE:]) for key, inner in part.items()
            }
        if isinstance(part, list | tuple):
            return type(part)(clean(each, names) for each in part)
        if isinstance(part, str):
            part, found = redact(part)
            kinds.extend(found)
        for name in dict.fromkeys(names) if isinstance(part, str | int | float) else ():
            if found := kinds_named(name, str(part)):
                kinds.extend(found)
                return f"[redacted: {', '.join(found)}]"
        return part

    return clean(value), tuple(dict.fromkeys(kinds))


def _secret_name(key: object) -> tuple[str, ...]:
    """Return the key, as it is read, if it may name a secret."""
    plain = _INVISIBLE.sub("", key).translate(_PLAIN) if isinstance(key, str) else ""
    return (plain,) if any(name in plain.lower() for name in _NAMES) else ()


def without_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """Remove these secrets in any form, and everything that looks like one.

    For errors and logs, where a wrong redaction costs little: text after `key=` or `Bearer` is removed, too.
    """
    forms = {form for each in secrets for form in (each, quote(each, safe=""), json.dumps(each)[1:-1])}
    for secret in sorted(forms, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, _MASK)
    return re.sub(_NAMED, _MASK, re.sub(_BEGINS_LIKE_A_KEY, _MASK, redact(text)[0], flags=re.ASCII))

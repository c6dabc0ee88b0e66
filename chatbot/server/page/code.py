"""Colours of code, as classes that the style sheet knows: the Content-Security-Policy allows no inline styles."""

from __future__ import annotations

from functools import cache
from itertools import groupby

from markdown_it.common.utils import escapeHtml
from pygments import lex
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Literal, Name, Operator, String, Token, _TokenType, is_token_subtype
from pygments.util import ClassNotFound

_LONGEST = 20_000
"""Longer code in characters is shown without colours, to limit the time."""
_LANGUAGES = frozenset(
    {
        *("bash", "bat", "c", "c#", "c++", "clojure", "cmake", "cpp", "cs", "csharp", "css", "diff", "docker"),
        *("dockerfile", "elixir", "erlang", "go", "golang", "graphql", "groovy", "haskell", "hs", "html", "http"),
        *("ini", "java", "javascript", "js", "json", "jsx", "julia", "kotlin", "latex", "lua", "make", "makefile"),
        *("nginx", "nix", "objective-c", "ocaml", "patch", "perl", "php", "powershell", "ps1", "protobuf", "py"),
        *("python", "r", "rb", "rs", "ruby", "rust", "scala", "scss", "sh", "shell", "sql", "swift", "tex", "toml"),
        *("ts", "tsx", "typescript", "vim", "xml", "yaml", "yml", "zig", "zsh"),
    }
)
"""A reply names its language itself, so only lexers in wide use are run: others may be slow over hostile text."""
_CLASSES = (
    (Comment, "c"),
    (Keyword, "k"),
    (String, "s"),
    (Literal, "n"),
    (Name.Function, "f"),
    (Name.Class, "f"),
    (Name.Decorator, "f"),
    (Name.Tag, "k"),
    (Name.Attribute, "f"),
    (Name.Builtin, "b"),
    (Operator.Word, "k"),
    (Token.Generic.Deleted, "d"),
    (Token.Generic.Inserted, "i"),
)


def highlighted(text: str, language: str) -> str:
    """Return the code as HTML. Code of an unknown language, or very long code, has no colours."""
    lexer = _lexer(language.lower()) if len(text) <= _LONGEST else None
    if lexer is None:
        return escapeHtml(text)
    runs = groupby(lex(text, lexer), key=lambda token: _class_of(token[0]))
    return "".join(_span(name, escapeHtml("".join(value for _, value in run))) for name, run in runs)


@cache
def _class_of(kind: _TokenType) -> str:
    return next((name for known, name in _CLASSES if is_token_subtype(kind, known)), "")


def _span(name: str, html: str) -> str:
    return f'<span class="{name}">{html}</span>' if name else html


def _lexer(language: str) -> Lexer | None:
    """Return the lexer of that language; None if there is none."""
    if language not in _LANGUAGES:
        return None
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None

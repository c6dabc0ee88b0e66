"""Markdown of untrusted authors as safe HTML.

Three protections: HTML in the text is shown as text, the result is sanitized, and the page's Content-Security-Policy
runs no inline script and loads nothing from other hosts. Images become links: loading one would tell its server who
reads what.
"""

import re
import time
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import groupby, takewhile
from typing import Any
from urllib.parse import urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Literal, Name, Operator, String, _TokenType, is_token_subtype

_LONGEST = 100_000
"""Longest text in characters that is rendered; longer text is shown as written, to limit the time."""
_HEADINGS_ABOVE = 2
_LONGEST_LANGUAGE = 30
_SCHEMES = {"http", "https", "mailto"}
_TAGS = {
    *("a", "blockquote", "br", "button", "code", "del", "div", "em", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p"),
    *("pre", "s", "small", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"),
    *("math", "menclose", "mfrac", "mi", "mn", "mo", "mover", "mphantom", "mroot", "mrow", "mspace", "msqrt", "mstyle"),
    *("msub", "msubsup", "msup", "mtable", "mtd", "mtext", "mtr", "munder", "munderover"),
}
_ATTRIBUTES = {
    **{tag: {"class"} for tag in ("li", "td", "th")},
    "a": {"href"},
    "button": {"class", "type"},
    "ol": {"start"},
    "pre": {"tabindex"},
    "div": {"class", "tabindex", "role", "aria-label"},
    "span": {"class", "tabindex", "role", "aria-label"},
    "math": {"display"},
    "mo": {"stretchy", "fence", "form"},
    "mspace": {"width"},
    "mtd": {"columnalign"},
}
"""Only this module sets classes: HTML in a text is shown as text, so no text can add attributes."""
_SCHEME = re.compile(r"(?<![\w+.-])https?$", re.IGNORECASE)
_ADDRESS = re.compile(r"://(?![^\s/?#]*@)[\w.:\[\]-]+(?:[/?#](?:[^\s<>\"`()]|\([^\s<>\"`()]*\))*)?(?<![.,;:!?'*_~\]])")
_KEEPS_BACKSLASH = "()[]{},;:%"
r"""Marks whose backslash stays, as they occur in formulas that are not complete yet: `\(x`, `\,`."""
_FORMULA_MARKS = {"$$": "$$", "\\(": "\\)", "\\[": "\\]", "$": "$"}
_BEGIN_FORMULA = re.compile(r"^[ \t]*(\$\$|\\\[)", re.MULTILINE)
_TEX_SIGN = re.compile(r"[\\^_={}]")
_BEGIN_MATRIX, _END_MATRIX = (re.compile(rf"\\{mark}\{{[pbvBV]matrix\*?\}}") for mark in ("begin", "end"))
_LONGEST_FORMULA = 4_000
_BOX = re.compile(r"\[([ xX])\]\s+")
_ALIGNMENT = re.compile(r"text-align:(left|right|center)")


@lru_cache(maxsize=512)
def render(text: str) -> Markup:
    """Return the text as HTML."""
    return _to_html(text)


class GrowingText:
    """A text that still grows. Complete blocks are rendered once, the last one after each addition."""

    def __init__(self) -> None:
        self._open = ""

    def add(self, text: str) -> tuple[Markup, Markup]:
        """Add text; return the HTML of the blocks that are complete now, and of the last one."""
        self._open += text
        if len(self._open) > _LONGEST:  # to parse it again after each addition would take too long
            return self.end(), Markup()
        lines = self._open.split("\n")
        begins = [token.map[0] for token in _MARKDOWN.parse(self._open) if token.map and not token.level]
        undecided = _first_undecided(self._open)
        last = max((line for line in begins if line <= undecided), default=0)
        complete, self._open = "\n".join(lines[:last]), "\n".join(lines[last:])
        return _to_html(complete) if complete else Markup(), _to_html(self._open)

    def end(self) -> Markup:
        """Return the HTML of the rest."""
        left, self._open = self._open, ""
        return _to_html(left) if left else Markup()


def _first_undecided(text: str) -> int:
    """Return the first line that may begin a formula once later text closes it; else the number of lines."""
    for mark in _BEGIN_FORMULA.finditer(text):
        rest = text[mark.end() :]
        if _FORMULA_MARKS[mark[1]] not in rest and "\n\n" not in rest and len(rest) < _LONGEST_FORMULA:
            return text.count("\n", 0, mark.end())
    return text.count("\n") + 1


def _to_html(text: str) -> Markup:
    return Markup("<pre>{}</pre>").format(text) if len(text) > _LONGEST else _clean(_MARKDOWN.render(text))


class _Renderer(RendererHTML):
    """HTML renderer that shows the targets of links and turns images into links."""

    def heading_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any) -> str:
        """Lower the level of the heading, so that the page's own headings stay its outline."""
        token = tokens[idx]
        token.tag = f"h{min(int(token.tag[1]) + _HEADINGS_ABOVE, 6)}"
        return self.renderToken(tokens, idx, options, env)

    heading_close = heading_open

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any) -> str:
        """Code with its language, its colours, and a button that copies it."""
        del options, env
        token = tokens[idx]
        language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
        shown = escapeHtml(language[:_LONGEST_LANGUAGE])
        copy = '<button type="button" class="copy">Copy</button>'
        code = f'<pre tabindex="0"><code>{highlight(token.content, language)}</code></pre>'
        return f'<div class="code"><div class="head"><span>{shown}</span>{copy}</div>{code}</div>\n'

    code_block = fence

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any) -> str:
        """A box around the table that scrolls sideways where the screen is narrow."""
        table = self.renderToken(tokens, idx, options, env)
        return f'<div class="wide" tabindex="0" role="group" aria-label="Table">{table}'

    def table_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any) -> str:
        """End of the table and its box."""
        return f"{self.renderToken(tokens, idx, options, env)}</div>"

    def th_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any) -> str:
        """Render the alignment as a class: the Content-Security-Policy allows no style attributes."""
        found = _ALIGNMENT.match(str(tokens[idx].attrs.pop("style", "")))
        if found:
            tokens[idx].attrs["class"] = found[1]
        return self.renderToken(tokens, idx, options, env)

    td_open = th_open

    def task_box(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any) -> str:
        """A box, ticked or not, which screen readers read too."""
        del options, env
        is_done = tokens[idx].content.strip() != ""
        return f'<span class="box">{"☑" if is_done else "☐"}</span> '

    def formula(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any) -> str:
        """A formula as MathML, which browsers draw and screen readers read."""
        del options, env
        html = _mathml(tokens[idx].content)
        return f"<p>{html}</p>\n" if tokens[idx].block else html

    def link_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any) -> str:
        """Show the target, because the text may suggest another."""
        begin = next(at for at in range(idx, -1, -1) if tokens[at].type == "link_open")
        address = str(tokens[begin].attrs.get("href", ""))
        text = "".join(token.content for token in tokens[begin + 1 : idx])
        shown = "" if text == address else _host_of(address)
        return self.renderToken(tokens, idx, options, env) + shown

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any) -> str:
        """A link to the image."""
        token = tokens[idx]
        address = str(token.attrs.get("src", ""))
        alt = escapeHtml(self.renderInlineAsText(token.children or [], options, env))
        return f'<a href="{escapeHtml(address)}">image: {alt or "without a description"}</a>{_host_of(address)}'


def _escape(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - markdown-it calls it so
    """Keep the backslash before marks that need no escape in a reply; elsewhere it escapes, as in CommonMark."""
    following = state.src[state.pos + 1 : state.pos + 2]
    if state.src[state.pos] != "\\" or not following or following not in _KEEPS_BACKSLASH:
        return False
    if not silent:
        state.pending += "\\" + following
    state.pos += 2
    return True


def _bare_address(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - markdown-it calls it so
    """Make a link of a web address in the text, unless it contains a user's name, which could look like a host."""
    scheme = None if state.linkLevel else _SCHEME.search(state.pending[-9:])
    if not (scheme and (rest := _ADDRESS.match(state.src, state.pos))):  # matched at every "://", it would be quadratic
        return False
    if not silent:
        state.pending = state.pending[: -len(scheme[0])]
        state.push("link_open", "a", 1).attrs = {"href": state.md.normalizeLink(scheme[0] + rest[0])}
        state.push("text", "", 0).content = scheme[0] + rest[0]
        state.push("link_close", "a", -1)
    state.pos = rest.end()
    return True


def _formula(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - markdown-it calls it so
    r"""Formulas between `$$`, `\(` and `\)`, `\[` and `\]`, or single dollars that are not prices."""
    at, text = state.pos, state.src
    mark = next((each for each in _FORMULA_MARKS if text.startswith(each, at)), "")
    begin = at + len(mark)
    end = text.find(_FORMULA_MARKS[mark], begin, begin + _LONGEST_FORMULA) if mark else -1
    if end <= begin or (mark == "$" and not _is_formula(text, begin, end)):
        return False
    if not silent:
        state.push("formula", "math", 0).content = text[at : end + len(mark)]
    state.pos = end + len(mark)
    return True


def _is_formula(text: str, begin: int, end: int) -> bool:
    """Return whether the text between two dollars is a formula: `$5 and $10`, `US$5` and `$HOME:$PATH` are not."""
    inside = text[begin:end]
    is_apart = not (text[: begin - 1][-1:].isalnum() or text[end + 1 : end + 2].isalnum())
    is_price = inside[0].isdecimal() and " " in inside and not _TEX_SIGN.search(inside)
    return is_apart and inside == inside.strip() and "\n" not in inside and inside[-1] != "\\" and not is_price


def _formula_block(state: StateBlock, begin: int, end: int, silent: bool) -> bool:  # noqa: FBT001
    r"""A formula of whole lines between `$$` or `\[` and `\]`, in which a line such as `- x` begins no list."""
    at = state.bMarks[begin] + state.tShift[begin]
    mark = state.src[at : at + 2]
    if mark not in {"$$", "\\["}:
        return False
    until = state.src.find(_FORMULA_MARKS[mark], at + 2, at + _LONGEST_FORMULA) + 2
    line = next((each for each in range(begin, end) if state.eMarks[each] >= until), end) if until > 1 else end
    if line == end or state.src[until : state.eMarks[line]].strip() or "\n\n" in state.src[at:until]:
        return False
    if min(state.sCount[begin : line + 1]) < state.blkIndent:  # outside of its list item
        return False
    if not silent:
        token = state.push("formula", "math", 0)
        token.content = state.getLines(begin, line + 1, state.blkIndent, keepLastLF=False).strip()
        token.map, token.block = [begin, line + 1], True
    state.line = line + 1
    return True


def _mathml(formula: str) -> str:
    """Return a formula with its marks as MathML, or as code if it cannot be parsed."""
    from latex2mathml.converter import convert  # its table of symbols takes long to read, and most replies need none

    mark = next(each for each in _FORMULA_MARKS if formula.startswith(each))
    is_block = mark in {"$$", "\\["}
    try:
        # Braces around a matrix, so that an exponent after it applies to the whole matrix.
        text = _END_MATRIX.sub(r"\g<0>}", _BEGIN_MATRIX.sub(r"{\g<0>", formula[len(mark) : -len(mark)].strip()))
        html = convert(text, display="block" if is_block else "inline")
    except Exception:  # noqa: BLE001 - any error may come from a text that is not a formula
        return f"<code>{escapeHtml(formula)}</code>"
    return f'<span class="formula" tabindex="0" role="group" aria-label="Formula">{html}</span>' if is_block else html


def _task_lists(state: StateCore) -> None:
    """Turn `[ ]` and `[x]` at the beginning of a list's item into a box."""
    for item, _, inline in zip(state.tokens, state.tokens[1:], state.tokens[2:], strict=False):
        if item.type != "list_item_open" or inline.type != "inline" or not inline.children:
            continue
        text = inline.children[0]
        if text.type == "text" and (found := _BOX.match(text.content)):
            text.content = text.content[found.end() :]
            box = Token("task_box", "", 0, content=found[1])
            inline.children.insert(0, box)
            item.attrs["class"] = "todo"


def _host_of(address: str) -> str:
    try:
        place = urlsplit(address).netloc.rpartition("@")[2]  # without user info, which could look like a host
    except ValueError:
        place = ""
    return f" <small>({escapeHtml(place or address)})</small>"


def _clean(html: str) -> Markup:
    return Markup(  # noqa: S704 - this is the one place that makes HTML of untrusted text
        nh3.clean(
            html,
            tags=_TAGS,
            attributes=_ATTRIBUTES,
            url_schemes=_SCHEMES,
            link_rel="noopener noreferrer nofollow",
            set_tag_attribute_values={"a": {"target": "_blank"}},
        )
    )


def _markdown() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": 20}, renderer_cls=_Renderer)
    parser.enable(["table", "strikethrough"])
    parser.block.ruler.before("fence", "formula", _formula_block, {"alt": ["paragraph", "blockquote", "list"]})
    parser.inline.ruler.after("text", "bare_address", _bare_address)
    parser.inline.ruler.before("escape", "formula", _formula)
    parser.inline.ruler.before("escape", "kept_backslash", _escape)
    parser.core.ruler.push("task_lists", _task_lists)
    return parser


_MARKDOWN = _markdown()


_LONGEST_COLOURED = 20_000
"""Code with more characters is shown without colours, to limit the time."""
_COLOURING_S = 0.1
"""CPU time to colour one block of code, the rest of which stays plain: lexers may be quadratic in hostile text."""
LANGUAGES = frozenset(
    {
        *("bash", "bat", "c", "c#", "c++", "clojure", "cmake", "cpp", "cs", "csharp", "css", "diff", "docker"),
        *("dockerfile", "elixir", "erlang", "go", "golang", "graphql", "groovy", "haskell", "hs", "html", "http"),
        *("ini", "java", "javascript", "js", "json", "jsx", "julia", "kotlin", "latex", "lua", "make", "makefile"),
        *("nginx", "nix", "objective-c", "ocaml", "perl", "php", "powershell", "ps1", "protobuf", "py"),
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
    (Generic.Deleted, "d"),
    (Generic.Inserted, "i"),
)


def highlight(text: str, language: str) -> str:
    """Return the code as HTML. Code of an unknown language, or very long code, has no colours."""
    language = language.lower()
    if language not in LANGUAGES or len(text) > _LONGEST_COLOURED:
        return escapeHtml(text)
    lexed = get_lexer_by_name(language).get_tokens_unprocessed(text)  # `lex` would drop a byte order mark
    until = time.thread_time() + _COLOURING_S
    tokens = [(kind, value) for _, kind, value in takewhile(lambda _: time.thread_time() < until, lexed)]
    rest = text[sum(len(value) for _, value in tokens) :]
    runs = groupby([*tokens, (_TokenType(), rest)], key=lambda token: _class_of(token[0]))
    shown = ((name, escapeHtml("".join(value for _, value in run))) for name, run in runs)
    return "".join(f'<span class="{name}">{html}</span>' if name else html for name, html in shown)


@cache
def _class_of(kind: _TokenType) -> str:
    return next((name for known, name in _CLASSES if is_token_subtype(kind, known)), "")

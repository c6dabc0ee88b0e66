"""Markdown of untrusted authors as safe HTML.

Three protections: HTML in the text is shown as text, the result is sanitized, and the page's Content-Security-Policy
runs no inline script and loads nothing from other hosts. Images become links: loading one would tell its server who
reads what.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup

_LONGEST = 100_000
"""Longest text in characters that is rendered; longer text is shown as written, to limit the time."""
_HEADINGS_ABOVE = 2
_SCHEMES = {"http", "https", "mailto"}
_TAGS = {
    *("a", "blockquote", "br", "code", "del", "em", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre"),
    *("s", "small", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"),
}
_ATTRIBUTES = {"a": {"href"}, "ol": {"start"}}


@lru_cache(maxsize=512)
def rendered(text: str) -> Markup:
    """The text as HTML."""
    return _rendered(text)


class Growing:
    """A text that still grows. Blocks that are complete are rendered once, only the last one again and again."""

    def __init__(self) -> None:
        self._open = ""

    def add(self, text: str) -> tuple[Markup, Markup]:
        """Add text; return the HTML of the blocks that are complete now, and of the last one."""
        self._open += text
        lines = self._open.split("\n")
        begins = [token.map[0] for token in _MARKDOWN.parse(self._open) if token.map and not token.level]
        last = max(begins, default=0)
        complete, self._open = "\n".join(lines[:last]), "\n".join(lines[last:])
        return _rendered(complete) if complete else Markup(), _rendered(self._open)

    def end(self) -> Markup:
        """Return the HTML of the rest."""
        left, self._open = self._open, ""
        return _rendered(left) if left else Markup()


def _rendered(text: str) -> Markup:
    return Markup("<pre>{}</pre>").format(text) if len(text) > _LONGEST else _clean(_MARKDOWN.render(text))


class _Renderer(RendererHTML):
    """Markdown parser that shows the target of links and turns images into links."""

    def heading_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any) -> str:
        """Below the headings of the page, so that these stay its outline."""
        token = tokens[idx]
        token.tag = _below(token.tag)
        return self.renderToken(tokens, idx, options, env)

    heading_close = heading_open

    def link_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any) -> str:
        """Show the target, because the text may suggest another."""
        opened = next(token for token in reversed(tokens[:idx]) if token.type == "link_open")
        address = str(opened.attrs.get("href", ""))
        said = "".join(token.content for token in tokens[tokens.index(opened) + 1 : idx])
        told = "" if said == address else _told(address)
        return self.renderToken(tokens, idx, options, env) + told

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Any) -> str:
        """A link to the image."""
        token = tokens[idx]
        address = str(token.attrs.get("src", ""))
        alt = escapeHtml(self.renderInlineAsText(token.children or [], options, env))
        return f'<a href="{escapeHtml(address)}">image: {alt or "without a description"}</a>{_told(address)}'


def _below(tag: str) -> str:
    return f"h{min(int(tag[1]) + _HEADINGS_ABOVE, 6)}"


def _told(address: str) -> str:
    return f" <small>({escapeHtml(_place(address))})</small>"


def _place(address: str) -> str:
    try:
        return urlsplit(address).netloc or address
    except ValueError:
        return address


def _clean(html: str) -> Markup:
    return Markup(  # noqa: S704 - this is the one place that makes HTML of a stranger's text
        nh3.clean(
            html,
            tags=_TAGS,
            attributes=_ATTRIBUTES,
            url_schemes=_SCHEMES,
            link_rel="noopener noreferrer nofollow",
            set_tag_attribute_values={"a": {"target": "_blank"}},
        )
    )


_MARKDOWN = MarkdownIt("commonmark", {"html": False, "maxNesting": 20}, renderer_cls=_Renderer).enable(
    ["table", "strikethrough"]
)

"""Markdown as HTML: what is allowed, what is not, and that growing gives what the whole gives."""

import re
import time
from html import unescape
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chatbot.server.page.markdown import LANGUAGES, GrowingText, highlight, render
from tests.effort import by_day, share
from tests.patience import PATIENCE_S

_ALLOWED = re.compile(r"(https?:|mailto:)", re.IGNORECASE)
_REST = 'target="_blank" rel="noopener noreferrer nofollow"'
_PIECES = [
    *("<script>", "</script>", "<img src=x onerror=alert(1)>", "[a](javascript:alert(1))", "![b](http://x.test/p)"),
    *("<http://e.test>", "http://e.test/(", "`", "```\n", "\n\n", "- ", "> ", "# ", "|a|b|\n|-|-|\n"),
    *("[x]: data:text/html,1\n", "[x]"),
    *("$", "$$", "\\(", "\\)", "\\[\n", "\n\\]\n", "\\href{javascript:alert(1)}{x}", "\\style{x}{y}", "\\class{x}"),
    *("\\text{<img src=x onerror=alert(1)>}", "{\\color{", "}", "\\frac", "^", "&", "\\begin{array}", "\\hspace{9em}"),
    *('" onmouseover="alert(1)', "&#106;avascript:", "\u202e", "**", "_", "\\", "<svg/onload=", "1. ", "word "),
]
_OF_FORMULAS = {"role", "aria-label", "display", "stretchy", "fence", "form", "width", "columnalign"}
HOSTILE = st.lists(st.sampled_from(_PIECES) | st.text(max_size=4), max_size=25).map("".join)


class _Elements(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@given(HOSTILE)
def test_nothing_comes_out_that_could_run_or_load(text: str) -> None:
    for tag, attributes in _Elements(render(text)).found:
        assert tag not in {"script", "img", "svg", "iframe", "style", "object", "form", "input", "meta", "link"}
        assert set(attributes) <= {"href", "rel", "target", "start", "class", "type", "tabindex"} | _OF_FORMULAS
        if "href" in attributes:
            assert tag == "a"
            assert _ALLOWED.match(attributes["href"] or "")
            assert attributes["rel"] == "noopener noreferrer nofollow"


_LINES = ["word ", "\n\n", "$$\n", "x\n$$\n", "\\[", "\n", "- one\n", "```\n", "# head\n", "> said\n", "1. a\n"]


@given(st.lists(st.sampled_from(_LINES)))
@example(["word ", "$$\nx\n$$\n", "- one\n", "$$\nx\n$$\n"])
def test_a_text_that_grows_ends_as_the_whole(pieces: list[str]) -> None:
    growing = GrowingText()
    complete = "".join([*(growing.add(piece)[0] for piece in pieces), growing.end()])
    assert "".join(complete.split()) == "".join(render("".join(pieces)).split())


PRICES = ("It costs $5 and $10.", "US$5 or CA$6", "from $5, or 10$ off", "set $HOME/bin:$PATH", "$ 5 and 6 $", "$$")
"""No formulas."""
ADDRESSES = {
    "see {}. Or": "https://example.org/a_b/x(y)?q=1",
    "({})": "http://localhost:8000",
    "**{}**!": "https://example.org/@ada/",
    "|a|\n|-|\n|{}|": "https://example.org/a",
}
"""Texts that make links of these addresses."""


@pytest.mark.parametrize(
    ("text", "html"),
    [
        *((text, f"<p>{text}</p>\n") for text in PRICES),
        (r"see $\frac$", "<p>see <code>$\\frac$</code></p>\n"),
        (r"$\begin{pmatrix} a \end{pmatrix}^2$", "<mo>)</mo></mrow><mn>2</mn></msup>"),
        ("<b>bold</b>", "<p>&lt;b&gt;bold&lt;/b&gt;</p>"),
        ("roses\nviolets", "<p>roses<br>\nviolets</p>"),
        (
            "[your bank](https://evil.test/login)",
            f'<p><a href="https://evil.test/login" {_REST}>your bank</a> <small>(evil.test)</small></p>',
        ),
        *((text.format(each), f'<a href="{each}" {_REST}>{each}</a>') for text, each in ADDRESSES.items()),
        ("https://bank.test@evil.test/ `https://a.b` xhttps://a.b", "https://bank.test@evil.test/ <code>https://a.b<"),
        ("# one\n\n###### six", "<h3>one</h3>\n<h6>six</h6>"),
        ("[x](javascript:alert(1))", "<p>[x](javascript:alert(1))</p>"),
        ("- [ ] a\n- [x] b", '<span class="box">☐</span> a'),
        ("\\(a_b\\)", "<msub><mi>a</mi><mi>b</mi></msub>"),
        ("|a|b|\n|--:|:-:|\n|1|2|", '<td class="right">1</td>\n<td class="center">2</td>'),
        ("```python\nx = 1\n```", '<span>python</span><button type="button" class="copy">Copy</button>'),
        ("\\*plain\\*", "<p>*plain*</p>"),
        ("C:\\(x", "C:\\(x"),
        (
            "![cat](https://evil.test/c.png?secret)",
            f'<p><a href="https://evil.test/c.png?secret" {_REST}>image: cat</a> <small>(evil.test)</small></p>',
        ),
    ],
)
def test_replies_keep_what_their_writer_meant(text: str, html: str) -> None:
    assert html in render(text)


def test_a_link_whose_text_is_another_address_says_where_it_leads() -> None:
    assert "<small>" not in render("<https://bank.test>")
    for address in (
        "https://evil.test", "//evil.test/login", "https://bank.test@evil.test", "https://bank.test:443@evil.test/",
        "//u@evil.test",
    ):  # fmt: skip
        assert "<small>(evil.test)</small>" in render(f"[https://bank.test]({address})")
        assert "<small>(evil.test)</small>" in render(f"![https://bank.test]({address})")
    for address in ("///evil.test", "https:evil.test", "https:/evil.test"):  # which a browser takes for a host too
        assert f"<small>({address})</small>" in render(f"[https://bank.test]({address})")


def test_what_is_very_long_is_shown_as_it_is_written() -> None:
    assert render("*" * 200_000) == "<pre>" + "*" * 200_000 + "</pre>"
    assert GrowingText().add("<i>" * 50_000) == (render("<i>" * 50_000), "")
    begun = time.thread_time()
    for each in ("[a](/b)", "http://a/(", "https://a@", "://a"):
        render(each * (100_000 // len(each)))
    assert time.thread_time() - begun < PATIENCE_S / 20
    assert "{{{" in render(f"${'{' * 1_500}$")  # deeper than a parser of formulas goes


@pytest.mark.parametrize("formula", [r"$\frac{1}{2}$", r"\(\frac{1}{2}\)", r"$$\frac{1}{2}$$", r"\[\frac{1}{2}\]"])
def test_a_formula_is_drawn_by_the_browser(formula: str) -> None:
    html = render(f"It is {formula}.")
    assert "<mfrac><mrow><mn>1</mn></mrow><mrow><mn>2</mn></mrow></mfrac>" in html
    assert ('display="block"' in html) == (formula[:2] in {"$$", "\\["})


def test_lines_of_a_formula_begin_no_list_and_end_with_its_mark() -> None:
    html = render("so:\n\\[\na\n- b\n+ c\n\\]\nand `$x$`")
    assert "<li>" not in html
    assert html.count("<math") == 1
    assert html.endswith("<p>and <code>$x$</code></p>\n")


def test_code_is_coloured_escaped_and_complete() -> None:
    code = 'if x < 1:\n    print("<b>")  # &\n'
    html = highlight(code, "python")
    assert '<span class="k">if</span>' in html
    assert "<b>" not in html
    for each in share(sorted(LANGUAGES), "a day"):
        assert unescape(re.sub(r"</?span[^>]*>", "", highlight("\ufeffx", each))) == "\ufeffx"
    assert highlight(code, "no-such-language") == "if x &lt; 1:\n    print(&quot;&lt;b&gt;&quot;)  # &amp;\n"
    assert "span" not in highlight("x = 1\n" * 10_000, "python")


@pytest.mark.parametrize("language", by_day(["java", "perl", "csharp", "ruby", "scala", "xml", "bash"], "java"))
@pytest.mark.parametrize("piece", ["a ", "m{", "a.", "<a ", "$(("])
def test_hostile_code_is_coloured_for_a_bounded_time_and_shown_whole(language: str, piece: str) -> None:
    code = piece * (19_000 // len(piece)) + "("
    begun = time.thread_time()
    html = highlight(code, language)
    assert time.thread_time() - begun < 2  # the lexers alone take up to 15 s
    assert unescape(re.sub(r"</?span[^>]*>", "", html)) == code

"""Analysis of texts into search terms, the same for stored texts and for questions; and into sentences.

Terms are lower-case, with one form of each letter and digit; English words are stemmed; stop words are left out. An
identifier and a word with an apostrophe yield themselves and their parts; Han, kana, Hangul and Thai each character and
each pair of neighbours; an emoji itself without skin tone, a joined one its parts; currencies are terms, too.

A text is data: nothing in it is an operator, and control and direction marks never get into a term. Bounds: only the
first `MAX_TEXT` characters are analysed, a term is cut to `MAX_TERM` characters, and a token longer than `MAX_TOKEN` is
found only by its parts.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise

VERSION = 10
"""Version of the analysis here and in `chatbot.stores.text.dates`: caches of another version are rebuilt."""

MAX_TEXT = 1_000_000
MAX_TERM = 64
MAX_TOKEN = 256
_CACHED_TOKENS = 50_000

STOP_WORDS = frozenset(
    """
    a about above across actually after afterwards again against ago all almost alone along already also although
    always am among an and another any anybody anyhow anyone anything anyway anywhere are arent around as aside at
    away b be became because become becomes been before beforehand behind being below beside besides between beyond
    both but by came can cannot cant come comes could couldnt d did didnt do does doesnt doing done dont down
    during e each either else elsewhere enough especially etc even ever every everybody everyone everything
    everywhere except f few for from further furthermore g gave get gets getting give given gives giving goes going
    gone gonna got gotta gotten h had hadnt has hasnt have havent having he hed her here hers herself hes hey
    him himself his how however hows i if im in indeed instead into is isnt it itd itll its itself ive j
    just k kind kinda l last least less let lets like likely m made make makes making many may maybe me mean
    meanwhile might mine more moreover most mostly much must mustnt my myself n namely near nearly neither
    nevertheless no nobody none nonetheless noone nor not nothing now nowhere o of off often oh ok okay on once one
    ones only onto or other others otherwise ought our ours ourselves out over own p per perhaps please probably
    put q quite rather re really regarding s said same say saying says see seem seemed seems seen shall shant she
    shes should shouldnt since so some somebody somehow someone something sometimes somewhat somewhere
    soon still such sure t take taken takes taking tell tells than thanks that thatd thatll thats the their theirs
    them themselves then there thereby therefore theres these they theyd theyll theyre theyve thing things this
    those though through throughout thus til till to together told too took toward towards u under unless unlike
    until up upon us use used uses using usually v various ve very via w wanna was wasnt way we well went were
    werent weve what whatever whats when whenever whens where whereas whereby wherein wheres wherever whether which
    whichever while whilst who whod whoever whole wholl whom whos whose why whys will with within without wont
    would wouldnt x y yeah yes yet you youd youll your youre yours yourself yourselves youve z
    """.split(),  # noqa: SIM905 - 350 pairs of quotes would be unreadable
)
"""Function words, question words, fillers, contractions without apostrophe; not `r` and `c`, which name languages."""
_CONTRACTIONS = frozenset({"hell", "id", "ill", "shed", "shell", "wed"})
"""Contractions such as `she'll`, which are other words without their apostrophe."""

_JOINING = r"-.,:/\\@&'’"
_JOINT = rf"(?:_{{0,2}}[{_JOINING}]_{{0,2}}|_{{1,2}})"
_SYMBOLS = r"[A-Za-z0-9]\+\+|[A-Za-z]#(?!\w)"
_ASCII_TOKEN = rf"{_SYMBOLS}|[A-Za-z0-9]+(?:{_JOINT}[A-Za-z0-9]+)*"
_PARTS = rf"[^{_JOINING}_]+"
_HUMP = r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z]{3})(?=[A-Z][a-z])"
_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?"
_CJK = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
    "\u3005-\u3007\u3040-\u30ff\u3100-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\U00020000-\U000323af"
)
CJK_RUN = f"([{_CJK}]+)"
_SIGNS = (
    "[\U0001f1e6-\U0001f1ff]{2}"
    "|[\u00a2-\u00a5\u00a9\u00ae\u00b0\u20a0-\u20cf\u2300-\u23ff\u2600-\u2767\u2794-\u27bf\u2b00-\u2bff"
    "\U0001f000-\U0001f3fa\U0001f400-\U0001faff]"
)
"""Flags, which are two characters, and single signs; no arrows, bullets and lines, which only lay out a text."""
_LEAST_PART = 3
"""Least letters of a part before or after an apostrophe, such as "İzmir" in "İzmir'de", that is a term."""
_SCRIPTS_THAT_FOLD = ("LATIN", "GREEK", "CYRILLIC", "ARABIC")

_known: dict[str, tuple[str, ...]] = {}


def terms(text: str) -> list[str]:
    """Return the terms of `text`, in its order and with repetitions; none if it has only stop words."""
    found: list[str] = []
    known = _known.get
    for token in _tokens(text[:MAX_TEXT]):
        found.extend(_terms_of(token) if (kept := known(token)) is None else kept)
    return found


def _tokens(text: str) -> Iterator[str] | list[str]:
    if text.isascii():
        return re.findall(_ASCII_TOKEN, text)
    folded = fold_letters(text.translate(_CLEAN))[:MAX_TEXT]
    return (
        token
        for piece in _any_token().findall(folded)
        for token in ([piece] if piece.isascii() else re.split(CJK_RUN, piece))
        if token
    )


def fold_letters(text: str) -> str:
    """Return the text with one form of each letter and digit, but in its case."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text).translate(_FOLDED)


def _terms_of(token: str) -> tuple[str, ...]:
    is_plain = token.isascii() and token.isalpha() and token.islower()
    if len(token) > MAX_TERM or (not token.isascii() and re.match(CJK_RUN, token)):
        return tuple(_pieces(token))
    if len(_known) >= _CACHED_TOKENS:
        _known.clear()
    kept = _known[token] = tuple(_word(token) if is_plain else _pieces(token))
    return kept


def _pieces(token: str) -> Iterator[str]:
    if not token.isascii() and re.match(CJK_RUN, token):
        yield from token
        yield from (a + b for a, b in pairwise(token))
    elif "," in token and re.fullmatch(_NUMBER, token):
        yield from _identifier(token.replace(",", ""))
    elif "," in token:
        for part in filter(None, token.split(",")):
            yield from _pieces(part)
    elif len(token) > MAX_TOKEN:
        for part in re.findall(_PARTS, token):
            yield from _word(part[:MAX_TERM].lower())
    else:
        for word in _at_apostrophes(token.replace("’", "'")):
            yield from _identifier(word)


def _at_apostrophes(token: str) -> list[str]:
    """Return contractions and possessives as one word, `don't` as `dont`, `Anna's` as `Anna`; others with their parts.

    The parts of `l'hôpital` and `İzmir'de` are a noun, and an article or an ending.
    """
    token = re.sub(r"'[sS](?![^\W_])", "", token)
    if "'" not in token:
        return [token]
    joined = token.replace("'", "").lower()
    if joined in _CONTRACTIONS:
        return []
    return [joined, *(part for part in token.split("'") if len(part) >= _LEAST_PART and joined not in STOP_WORDS)]


def _identifier(token: str) -> Iterator[str]:
    """Yield the whole, then each step of a path that has several words, then the words."""
    whole = token.lower()
    parts = re.findall(_PARTS, token)
    if parts == [token] and not re.search(_HUMP, token):
        yield from _word(whole)
        return
    words = [word.lower() for part in parts for word in re.split(_HUMP, part)]
    names = (name.strip(f"{_JOINING}_") for name in (whole, *re.split(r"[/\\]", whole)))
    yield from dict.fromkeys(_stemmed(name)[:MAX_TERM] for name in names if name and name not in words)
    for word in words:
        yield from _word(word)


def _word(word: str) -> Iterator[str]:
    if word not in STOP_WORDS:
        yield _stemmed(word)[:MAX_TERM]


def _stemmed(word: str) -> str:
    return _stem()(word) if word.isascii() and word.isalpha() else word


@cache
def _stem() -> Callable[[str], str]:
    from Stemmer import Stemmer

    stem: Callable[[str], str] = Stemmer("english", 0).stemWord
    return stem


class _Clean(dict[int, int | str | None]):
    """Map characters before normalisation: invisible marks are removed, other non-text becomes a space."""

    def __missing__(self, code: int) -> int | str | None:
        category = unicodedata.category(chr(code))
        self[code] = None if category == "Cf" else " " if category in {"Cc", "Cs"} else code
        return self[code]


class _Accents(dict[int, int | str | None]):
    """Map a letter to one without its accents, in scripts that have such a letter, and a digit to the one in ASCII."""

    def __missing__(self, code: int) -> int | str | None:
        char = chr(code)
        base = unicodedata.normalize("NFD", char)[0]
        folds = base != char and unicodedata.name(base, "").startswith(_SCRIPTS_THAT_FOLD)
        is_mark = 0x300 <= code <= 0x6ED and unicodedata.category(char) == "Mn"
        plain = str(unicodedata.decimal(char, char))
        self[code] = None if is_mark else base if folds else _LETTERS.get(char, plain)
        return self[code]


_LETTERS = {"ß": "ss", "ẞ": "SS", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L"}
_LETTERS |= {"đ": "d", "Đ": "D", "ð": "d", "þ": "th", "ı": "i", "ς": "σ", "Σ": "σ"}
_LETTERS |= {"ة": "ه", "ى": "ي", "ی": "ي", "ک": "ك", "ـ": "", "٫": ".", "٬": ","}
_LETTERS |= {chr(code): chr(code - 0x60) for code in range(0x30A1, 0x30F7)}  # katakana as hiragana

_CLEAN, _FOLDED = _Clean(), _Accents()


@cache
def _any_token() -> re.Pattern[str]:
    """Return `_ASCII_TOKEN` for all scripts; vowel signs, which `re` does not count as letters, belong to the word."""
    marks = "".join(chr(code) for code in range(0x300, 0x1B00) if unicodedata.category(chr(code)) in {"Mn", "Mc"})
    word = rf"(?:[^\W_]|[{marks}])+"
    return re.compile(rf"{_SYMBOLS}|{word}(?:{_JOINT}{word})*|{_SIGNS}")


SENTENCE_SIGNS = ".!?…。！？｡؟۔।"
_SENTENCE_END = re.compile(
    r"(?<=[。！？；｡\n])(?![!?！？])\s*|(?<=[!?…؟۔।])\s+"
    r"|(?<=[^\W_A-Z]{2}\.)(?!(?<=\bno\.)\s\d)(?<!\bvs\.)(?<!\b(?:Mrs|etc|Ave|Sgt|Col)\.)(?<!\bProf\.)(?<!\bapprox\.)\s+"
)
"""A full stop after a capital and at most one more letter may belong to an abbreviation."""
_LEAST_LINES, _SHORT_LINE = 4, 80


def sentences_of(text: str, *, whole_dates: bool = False) -> list[str]:
    """Split a text into sentences, also at line ends, but not after an abbreviation such as "Dr.".

    With `whole_dates` nor after two digits, which may begin a date such as "12. März".
    """
    kept = re.sub(r"(?<![\w:.,/-])(\d\d\.) ", "\\1\0", text) if whole_dates else text
    return [each.strip().replace("\0", " ") for each in _SENTENCE_END.split(kept) if each.strip()]


def is_list(text: str) -> bool:
    """Return whether a text has four lines or more, short ones on average, as lists and recipes have."""
    lines = text.strip().count("\n") + 1
    return lines >= _LEAST_LINES and len(text) <= lines * _SHORT_LINE


def is_question(text: str) -> bool:
    """Return whether a text ends with a question mark."""
    return text.rstrip().endswith(("?", "？", "؟"))


def with_neighbours(ratings: Sequence[float], share: float) -> list[float]:
    """Return the ratings of parts of a text, each with this share of the ratings before and after it."""
    around = zip([0.0, *ratings], ratings, [*ratings[1:], 0.0], strict=False)
    return [own + share * (before + after) for before, own, after in around]

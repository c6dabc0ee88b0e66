"""Declaration of a record's fields: the annotation of each says how its value is checked, written as JSON and read.

A record is a dataclass or a struct, and `Annotated` carries all that the rest of the code derives from it:

    title: Annotated[Line, SAID, SearchField("title")] = ""

    Line, Text, Count …   its form: how it is checked, written and read
    SAID                  part of the row's text, which is shown and counted in tokens
    MERGED                a list that grows when the same is remembered again
    Label()               rows are filtered and counted by it
    SearchField("title")  searchable, in this field of the index
    InTable()             kept for every row in the store's table, as a number
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from datetime import datetime
from itertools import compress
from operator import attrgetter, is_not
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Struct, structs

from chatbot.stores import records
from chatbot.stores.errors import InvalidValue, too_long

LONGEST_LINE = 1_000
LONGEST_TEXT = 1_000_000
MOST_ITEMS = 1_000
MOST_SOURCES = 10_000
MOST_COUNTED = 2**31
DEEPEST = 100
"""Deepest nesting of tables and lists in the metadata."""
_ODD_TEXT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

Record = TypeVar("Record")
Many = TypeVar("Many", bound=Sequence[str])
"""Type of lists: a tuple in a row; a draft also takes a list."""
NONE: Final[Any] = ()
"""The empty list of either type."""


def _same(value: Any, _: str) -> Any:
    return value


class Form(NamedTuple):
    """Check of a field's values, and their conversion from JSON, to JSON, and to a number of a column.

    `check` takes a value and the field's name, and returns the clean value; `read` converts JSON to a value for it.
    Both raise `InvalidValue`. `write` converts to JSON; None if nothing is converted. `code` is the type code of the
    column in an `array`, `number` converts a value to a number, and `value` converts it back.
    """

    check: Callable[[Any, str], Any] = _same
    read: Callable[[Any, str], Any] = _same
    write: Callable[[Any], Any] | None = None
    code: str = ""
    number: Callable[[Any], float] = float
    value: Callable[[Any], Any] | None = None


class FieldProperty:
    """A property of a field, looked up by `names_with`."""

    __slots__ = ()


class Label(NamedTuple):
    """Rows are filtered and counted by the field, called `name`; without case and width unless `exact`."""

    name: str = ""
    exact: bool = False


class SearchField(NamedTuple):
    """The field is searchable, in this field of the index."""

    field: str


class InTable(NamedTuple):
    """The table keeps the field as a number: `none` for None, `blank` for a row that was erased before it was read."""

    none: float = 0
    blank: float = 0


class Field(NamedTuple):
    """A declared field."""

    name: str
    form: Form | None
    default: Any
    """`dataclasses.MISSING` if there is none."""
    marks: tuple[object, ...]

    def mark(self, wanted: type[Record]) -> Record | None:
        """Return the property of that type, or None."""
        return next((each for each in self.marks if isinstance(each, wanted)), None)

    @property
    def written_default(self) -> Any:
        """The written form of the default."""
        write = self.form.write if self.form else None
        default = None if self.default is MISSING else self.default
        return default if write is None or default is None else write(default)


Fields: TypeAlias = Mapping[str, Field]


def fields_of(record: Any) -> dict[str, Field]:
    """Return the fields of a record, in order, by name."""
    found = {}
    hints: dict[str, Any] = {}
    for each in structs.fields(record) if issubclass(record, Struct) else fields(record):
        hint: Any = each.type
        if isinstance(hint, str):
            hints = hints or get_type_hints(record, include_extras=True)
            hint = hints[each.name]
        default = {} if each.default_factory is dict else MISSING if each.default is NODEFAULT else each.default
        marks = tuple(_marks(hint))
        form = next((mark for mark in marks if isinstance(mark, Form)), None)
        found[each.name] = Field(each.name, form, default, marks)
    return found


def names_with(found: Fields, mark: FieldProperty) -> tuple[str, ...]:
    """Return the names of the fields with the property."""
    return tuple(each.name for each in found.values() if mark in each.marks)


def fields_by_label(found: Fields) -> dict[str, tuple[Field, ...]]:
    """Return the fields of each label."""
    labels: dict[str, tuple[Field, ...]] = {}
    for each in found.values():
        if label := each.mark(Label):
            name = label.name or each.name
            labels[name] = (*labels.get(name, ()), each)
    return labels


def checker(found: Fields, put: Callable[[Any, str, Any], None] = object.__setattr__) -> Callable[[object], None]:
    """Return a function that checks and cleans each field that differs from its default. It raises `InvalidValue`.

    `put` sets a field of a frozen record: `force_setattr` for a struct.
    """
    checks = [(each, each.form.check) for each in found.values() if each.form is not None]
    values_of = attrgetter(*(each.name for each, _ in checks))
    defaults = [each.default for each, _ in checks]

    def check(record: object) -> None:
        values = values_of(record)
        given = compress(zip(values, checks, strict=True), map(is_not, values, defaults))  # most have the default
        for value, (each, check_field) in given:
            if (kept := check_field(value, each.name)) is not value:
                put(record, each.name, kept)

    return check


def writer(found: Fields) -> Callable[[object], dict[str, Any]]:
    """Return a function that returns the fields of a record that differ from their defaults, as they are written."""
    listed = [(each.name, each.default, each.form.write if each.form else None) for each in found.values()]
    values_of = attrgetter(*found)
    defaults = [each.default for each in found.values()]

    def written(record: object) -> dict[str, Any]:
        values = values_of(record)
        given = compress(zip(values, listed, strict=True), map(is_not, values, defaults))
        return {
            name: value if write is None or value is None else write(value)
            for value, (name, default, write) in given
            if value != default
        }

    return written


def parse_fields(line: Mapping[str, Any], found: Fields, *, partial: bool = False) -> dict[str, Any]:
    """Return the values of known fields from their written form. Raises `InvalidValue` for missing or mistyped ones."""
    values = dict(line)
    for name, value in line.items():
        field = found.get(name)
        if field is None:
            del values[name]
        elif field.form is not None and not (value is None and field.default is None):
            convert = field.form.read
            if convert is not _same:
                values[name] = convert(value, name)
    if not partial:
        for field in found.values():
            if field.default is MISSING and field.name not in values:
                raise InvalidValue(f"it has no {field.name!r}")
    return values


def how_many(count: int, one: str, several: str = "") -> str:
    """Return a count with its noun: "1 memory", "2,000 memories"."""
    ends_in_y = one.endswith("y") and not one.endswith(("ay", "ey", "oy", "uy"))
    several = several or (f"{one[:-1]}ies" if ends_in_y else f"{one}s")
    return f"{count:,} {one if count == 1 else several}"


def check_id(text: object, _: str = "") -> Any:
    """Return an id. Raises `InvalidValue` unless it is a UUID in lower case."""
    if not (isinstance(text, str) and records.ID.fullmatch(text)):
        raise InvalidValue(f"{text!r:.80} is not an id: ids are UUIDs in lower case")
    return text


def one_line(text: object, name: str) -> str:
    """Return `text` on one line without control characters. Raises `InvalidValue` above 1,000 characters."""
    text = _checked(text, name)
    if records.ODD.search(text):
        text = records.in_line(text)
    if len(text) > LONGEST_LINE:
        rest = ", the rest in the narrative" if name == "title" else ""
        raise too_long(name, len(text), LONGEST_LINE, f" there{rest}")
    return text


def check_key(key: str) -> None:
    """Raise `InvalidValue` for a caller's key that could not be stored unchanged, so that no two keys become one."""
    if not key or one_line(key, "the key") != key:
        raise InvalidValue(f"the key {key!r:.80} is invalid: use one line without control characters or doubled spaces")


def clean_text(text: object, name: str) -> str:
    """Return `text` without control characters except newline and tab. Raises `InvalidValue` above 1,000,000."""
    text = _checked(text, name)
    if _ODD_TEXT.search(text):
        text = text.replace("\r\n", "\n").translate(records.CONTROLS)
    if len(text) > LONGEST_TEXT:
        raise too_long(name, len(text), LONGEST_TEXT)
    return text


def texts_in(value: object) -> list[str]:
    """Return every text of a value in its order, however deep, keys too."""
    found: list[str] = []
    parts = [value]
    while parts:
        part = parts.pop()
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, list | tuple):
            parts += reversed(part)
        elif isinstance(part, Mapping):
            parts += reversed([each for item in part.items() for each in item])
    return found


def check_depth(value: object, name: str) -> None:
    """Raise `InvalidValue` for tables and lists nested deeper than `DEEPEST`."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for part in level
            if isinstance(part, list | tuple | Mapping)
            for inner in (part.values() if isinstance(part, Mapping) else part)
        ]
        if not level:
            return
    raise InvalidValue(f"{name} is nested more than {DEEPEST} levels deep")


def check_share(value: object, name: str) -> Any:
    """Return a number from 0 to 1. Raises `InvalidValue` for any other value."""
    if isinstance(value, bool) or not (isinstance(value, int | float) and 0 <= value <= 1):
        raise InvalidValue(f"{name} is {value!r:.80}: it must be a number from 0 to 1")
    return value


def one_of_words(*known: str) -> Form:
    """Return the form of a field that takes one of these words."""

    def one_of(value: Any, name: str) -> Any:
        if value not in known:
            raise InvalidValue(f"{name} is {value!r:.80}: it must be one of {', '.join(known)}")
        return value

    return Form(one_of, code="B", number=known.index, value=known.__getitem__)


def _marks(hint: Any) -> Iterator[object]:
    """Yield the annotations of a field: all that is in `Annotated`, and the words of a `Literal`."""
    origin = get_origin(hint)
    if origin is Annotated:
        yield from hint.__metadata__
        yield from _marks(hint.__origin__)
    elif origin is Literal:
        yield one_of_words(*get_args(hint))
    else:
        for each in get_args(hint):
            yield from _marks(each)


def _checked(text: Any, name: str) -> str:
    return text if isinstance(text, str) and text.isascii() else records.check_text(text, name)


def _list_of(clean: Callable[[object, str], str], most: int = MOST_ITEMS) -> Form:
    """Return the form of a field that takes a list of texts, each once."""

    def items(value: Any, name: str) -> tuple[str, ...]:
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise InvalidValue(f"{name} is {value!r:.80}, not a list of texts")
        kept = tuple(dict.fromkeys(text for item in value if (text := clean(item, name))))
        if len(kept) > most:
            raise InvalidValue(f"{name} has {len(kept):,} items: at most {most:,} can be kept")
        return kept

    return Form(items, write=list)


def _check_count(value: object, name: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, int) or not -MOST_COUNTED <= value <= MOST_COUNTED:
        raise InvalidValue(f"{name} is {value!r:.80}: it must be a whole number of at most {MOST_COUNTED:,}")
    return value


def _read_count(value: object, name: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidValue(f"{name} is {value!r:.80}, not a number")
    return value


def _check_table(table: object, name: str) -> Mapping[str, Any]:
    if not isinstance(table, Mapping):
        raise InvalidValue(f"{name} is {table!r:.80}, not a table")
    if not table:
        return table
    check_depth(table, name)
    try:
        text = json.dumps(dict(table), allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(f"{name} cannot be written as JSON: {error}") from error
    if len(text) > LONGEST_TEXT:
        raise InvalidValue(f"{name} takes {len(text):,} characters: at most {LONGEST_TEXT:,} can be kept")
    kept: dict[str, Any] = json.loads(records.check_text(text, name))
    return kept


Line: TypeAlias = Annotated[str, Form(one_line)]
"""Text on one line, without control characters and white space at its ends."""
LineOrNone: TypeAlias = Annotated[str | None, Form(lambda value, name: one_line(value, name) or None)]
Text: TypeAlias = Annotated[str, Form(clean_text)]
Lines: TypeAlias = Annotated[Many, _list_of(one_line)]
Texts: TypeAlias = Annotated[Many, _list_of(clean_text)]
Ids: TypeAlias = Annotated[Many, _list_of(one_line, MOST_SOURCES)]
Id: TypeAlias = Annotated[str, Form(check_id, read=check_id)]
Moment: TypeAlias = Annotated[
    datetime,
    Form(
        lambda value, name: records.check_time(records.check_type(value, datetime, name)),
        read=lambda value, name: records.parse_time(records.check_text(value, name)),
        write=records.format_time,
        code="q",
        number=records.micros,
        value=records.moment,
    ),
]
Count: TypeAlias = Annotated[int, Form(_check_count, read=_read_count, code="I", number=lambda each: max(0, each))]
Share: TypeAlias = Annotated[float, Form(check_share, code="d")]
Table: TypeAlias = Annotated[Mapping[str, Any], Form(_check_table, write=dict)]
"""JSON values by key."""

SAID = FieldProperty()
MERGED = FieldProperty()


_PLAIN = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}


def in_words(error: Exception, kind: Any) -> str:
    """Return in plain words what a setting of type `kind` should be; the `Meta` of the type may hold them."""
    if described := [*filter(None, (getattr(each, "description", "") for each in getattr(kind, "__metadata__", ())))]:
        return f"expected {described[0]}"
    choices = [each for part in (kind, *get_args(kind)) if get_origin(part) is Literal for each in get_args(part)]
    if choices and (get_origin(kind) is Literal or str(error).startswith("Invalid enum")):
        return f"it must be one of {', '.join(map(repr, choices))}"
    what = str(error).partition(" - at `")[0]
    what = re.sub(
        "`([^`]*)`", lambda named: " or ".join(_PLAIN.get(each, each) for each in named[1].split(" | ")), what
    )
    return f"{what[:1].lower()}{what[1:]}"

"""The settings of a plug-in: the keyword-only arguments of its constructor, checked against their annotations."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, get_type_hints

from msgspec import ValidationError, convert

from chatbot.stores.errors import did_you_mean


def settings_of(plugin: type) -> dict[str, inspect.Parameter]:
    """The settings of a plug-in, by name."""
    parameters = inspect.signature(plugin).parameters.values()
    return {found.name: found for found in parameters if found.kind is found.KEYWORD_ONLY}


def checked_settings(
    table: str,
    plugin: type,
    settings: Mapping[str, Any],
    *,
    invalid: type[Exception],
    broken: type[Exception],
) -> dict[str, Any]:
    """Convert the settings to the types of the annotations; `table` is their place in error messages.

    Raises `invalid` for an unknown or invalid setting, `broken` for annotations that cannot be evaluated.
    """
    if not settings:
        return {}
    known = settings_of(plugin)
    for key in settings:
        if key not in known:
            raise invalid(f"{table} has no setting {key!r}{did_you_mean(key, known)}")
    try:
        hints = get_type_hints(plugin.__init__, include_extras=True)  # type: ignore[misc]
    except NameError as error:
        raise broken(f"the settings in {table} cannot be read from the annotations: {error}") from error
    checked = {}
    for key, value in settings.items():
        try:
            checked[key] = convert(value, hints.get(key, Any), strict=False)
        except ValidationError as error:
            raise invalid(f"{table} {key} = {value!r}: {error}") from error
        except TypeError as error:
            raise broken(
                f"the setting {key} in {table} has an annotation that no value can be checked by: {error}"
            ) from error
    return checked

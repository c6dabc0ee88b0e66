"""A place where plug-ins are named: from a name in the configuration to what it stands for.

A name is that of an entry point in a group, where our own plug-ins stand like any stranger's, or
`package.module:attribute`. Listing names imports nothing; loading one imports exactly that one. Our own are found
without looking through everything that is installed, and nobody else's can stand in their place.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stores.errors import did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@dataclass(frozen=True)
class PluginPoint:
    """One group of plug-ins, and how its errors speak of them."""

    group: str
    own: Mapping[str, str]
    """Our own entry points, as `pyproject.toml` has them."""
    noun: str
    """What one plug-in is called: "store", "tools"."""
    unknown: type[Exception]
    """Raised where nothing has that name."""
    broken: type[Exception]
    """Raised where something has it, and cannot be imported."""
    plural: bool = False

    def installed(self) -> dict[str, EntryPoint]:
        """Every installed plug-in by name, none of them imported."""
        from importlib.metadata import EntryPoint, entry_points

        found = {point.name: point for point in entry_points(group=self.group)}
        found |= {name: EntryPoint(name, where, self.group) for name, where in self.own.items()}
        return dict(sorted(found.items()))

    def load(self, name: str, *, beside: Path | None = None) -> object:
        """What the name leads to. Modules that are not installed are also looked for in the folder `beside`."""
        if ":" in name:
            return self._import(name, beside)
        point = None if name in self.own else self._entry_point(name)
        where = point.value if point else self.own[name]
        try:
            return point.load() if point else _attribute(where)
        except (Exception, SystemExit) as error:  # a stranger's module may raise anything
            raise self.broken(f"the {self.noun} {name!r} ({where}) cannot be loaded: {told(error)}") from error

    def _entry_point(self, name: str) -> EntryPoint:
        points = self.installed()
        if name not in points:
            is_called = "are called" if self.plural else "is called"
            raise self.unknown(f"no {self.noun} {is_called} {name!r}{did_you_mean(name, points)}")
        return points[name]

    def _import(self, name: str, beside: Path | None) -> object:
        if beside is not None and str(beside) not in sys.path:
            sys.path.append(str(beside))
        try:
            return _attribute(name)
        except (Exception, SystemExit) as error:  # a stranger's module may raise anything
            module = name.partition(":")[0]
            if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
                raise self.unknown(f"there is no module {module!r} to load the {self.noun} {name!r} from") from error
            raise self.broken(f"the {self.noun} {name!r} cannot be loaded: {told(error)}") from error


def _attribute(where: str) -> object:
    module, _, name = where.partition(":")
    return getattr(importlib.import_module(module), name)


def told(error: BaseException) -> str:
    """An error that a stranger's code raised, as a message names it."""
    return f"{type(error).__name__}: {error}"

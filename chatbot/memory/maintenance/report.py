"""Report of what maintenance did, or would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

Kind = Literal["consolidate", "archive", "delete", "compress", "summarize", "erase"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Deed:
    """Change to some rows, and its reason; `by` is the summary that now replaces them."""

    kind: Kind
    ids: tuple[str, ...]
    why: str
    by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceReport:
    """One run of maintenance."""

    deeds: tuple[Deed, ...] = ()
    dry_run: bool = False
    looked_at: int = 0
    finished: bool = True
    """True if nothing is left to do; else the next run continues where this one ended."""
    seconds: float = 0.0
    skipped: Literal["", "under way", "not due"] = ""
    """Why nothing was looked at: another process is at it, or it was done a short while ago."""

    def counts(self) -> Mapping[str, int]:
        """Number of rows for each kind of deed."""
        found = Counter[str]()
        for deed in self.deeds:
            found[deed.kind] += len(deed.ids)
        return {kind: found[kind] for kind in KINDS}

    def as_json(self) -> dict[str, Any]:
        """The report, for programs."""
        return {
            "dry_run": self.dry_run,
            "skipped": self.skipped,
            "looked_at": self.looked_at,
            "finished": self.finished,
            "seconds": round(self.seconds, 4),
            "counts": dict(self.counts()),
            "deeds": [
                {"kind": deed.kind, "count": len(deed.ids), "why": deed.why, "by": deed.by, "ids": list(deed.ids)}
                for deed in self.deeds
            ],
        }


def together(reports: Sequence[MaintenanceReport]) -> MaintenanceReport:
    """Several runs, one after the other, as one."""
    return MaintenanceReport(
        deeds=tuple(deed for report in reports for deed in report.deeds),
        dry_run=reports[-1].dry_run,
        looked_at=sum(report.looked_at for report in reports),
        finished=reports[-1].finished,
        seconds=sum(report.seconds for report in reports),
    )

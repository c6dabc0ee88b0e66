"""How money is written."""

from __future__ import annotations


def cost_text(cost_usd: float, *, is_known: bool = True) -> str:
    """US dollars, as many digits as the amount needs; a trailing +? where some calls have no known price."""
    digits = 2 if cost_usd >= 1 or cost_usd == 0 else 4
    return f"${cost_usd:.{digits}f}{'' if is_known else '+?'}"

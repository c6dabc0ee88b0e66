"""Which tools a model is told of, where all of them would take too much of its window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chatbot.chat.tool_names import is_own_memory_tool
from chatbot.messages import ToolSpec

_NAMED = 8


def fitting(specs: Sequence[ToolSpec], sizes: Mapping[str, int], room: int) -> tuple[ToolSpec, ...]:
    """Those that fit into `room` tokens, in their order; `sizes` are the tokens of each, by name.

    First the largest go that are not ours, for nobody knows how many more a server will have; then those of memory,
    the last one first, for they stand in the order of their use: to search and to read comes before all else.
    """
    own = [spec for spec in specs if is_own_memory_tool(spec.name)]
    others = sorted((spec for spec in specs if spec not in own), key=lambda spec: sizes[spec.name])
    kept = [*own, *others]
    while kept and sum(sizes[spec.name] for spec in kept) > room:
        kept.pop()
    return tuple(spec for spec in specs if spec in kept)


def left_out(specs: Sequence[ToolSpec], kept: Sequence[ToolSpec], window: int) -> str:
    """What the user is told of it."""
    names = [spec.name for spec in specs if spec not in kept]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return (
        f"the tools do not all fit a window of {window} tokens, so the model goes without {len(names)} of "
        f"{len(specs)}: {', '.join(names[:_NAMED])}{more}"
    )

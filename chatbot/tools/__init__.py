"""Tools that a model may call: what a tool is, and how calls are run. `function` makes them of plain functions."""

from chatbot.tools.toolbox import Confirm, Effect, Tool, Toolbox, ToolResult, ToolSource

__all__ = ["Confirm", "Effect", "Tool", "ToolResult", "ToolSource", "Toolbox"]

"""Tools that a model may call: the contract, and running calls. `function` makes tools of plain functions."""

from chatbot.tools.toolbox import Confirm, Effect, Tool, Toolbox, ToolResult

__all__ = ["Confirm", "Effect", "Tool", "ToolResult", "Toolbox"]

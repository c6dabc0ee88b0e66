"""Tools that a model may call: what a tool is, and how calls are run."""

from chatbot.tools.toolbox import Tool, Toolbox, ToolResult

__all__ = ["Tool", "ToolResult", "Toolbox"]

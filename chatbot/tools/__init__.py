"""Tools that a model may call: what a tool is, and how calls are run."""

from chatbot.tools.function import FunctionTool, Within
from chatbot.tools.toolbox import Confirm, Effect, Tool, Toolbox, ToolResult, ToolSource

__all__ = ["Confirm", "Effect", "FunctionTool", "Tool", "ToolResult", "ToolSource", "Toolbox", "Within"]

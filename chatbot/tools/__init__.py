"""Tools that a model may call: what a tool is, and how calls are run."""

from chatbot.tools.function import FunctionTool, Within
from chatbot.tools.toolbox import Effect, Tool, Toolbox, ToolResult

__all__ = ["Effect", "FunctionTool", "Tool", "ToolResult", "Toolbox", "Within"]

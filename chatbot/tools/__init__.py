"""Tools that a model may call: what a tool is, and how calls are run."""

from chatbot.tools.function import FunctionTool, Within
from chatbot.tools.toolbox import Tool, Toolbox, ToolResult

__all__ = ["FunctionTool", "Tool", "ToolResult", "Toolbox", "Within"]

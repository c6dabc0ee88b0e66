"""The tools of other programs, over the Model Context Protocol.

servers      all that are configured, started side by side and ended together
server       one of them: its calls, its restarts           connection   one run of it, in a task of its own
child        its process, in a group that is ended whole    lines        messages as lines of JSON on byte streams
tool         one of its tools, as a model is offered it

The SDK is imported when a server is started, not before. What a server says is a stranger's text: it is cut to a
length, stripped of what nobody can see, and handed to the model as data.
"""

from chatbot.tools.mcp.servers import McpServers

__all__ = ["McpServers"]

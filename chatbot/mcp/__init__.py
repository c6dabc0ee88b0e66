"""The MCP server, `chatbot mcp`: memory shared with other agents. Its transport over HTTP is `chatbot.server.serve`."""

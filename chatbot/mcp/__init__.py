"""The MCP server, `chatbot mcp`: memory shared with other agents.

surface   the tools, prompts and resources, for one identity, agent and clearance, which no argument can change
stdio     the transport over standard input and output; that over HTTP is `chatbot.server.serve`
"""

"""The MCP server, `chatbot mcp`: memory shared with other agents.

surface  the server for one identity, agent and clearance, which no argument can change; on a pipe
http     the same over HTTP
"""

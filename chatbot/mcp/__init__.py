"""The MCP server, `chatbot mcp`: other agents share what is remembered.

surface      the tools and resources, for one identity, agent and clearance, none of which is ever an argument
resources    sessions and memories by address                 errors   the one place that knows MCP's codes
stdio, http  the two ways in
"""

"""The MCP server, `chatbot mcp`: other agents share what is remembered.

surface      the tools, prompts and resources, for one identity, agent and clearance, none of which is ever an argument
stdio, http  the two ways in
"""

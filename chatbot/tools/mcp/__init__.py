"""Tools of other programs over the Model Context Protocol.

server       one server: calls and restarts; all configured servers, started and ended together
connection   one run of a server: its task, its process group, and messages as JSON lines on byte streams

The SDK is imported when a server is started. Text of servers is untrusted: its length is limited, invisible characters
are removed, and the model gets it as data.
"""

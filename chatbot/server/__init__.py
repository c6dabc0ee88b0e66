"""The HTTP server, `chatbot serve`: OpenAI-compatible and native routes, and the doors that guard them all.

app        puts the parts together                   house    the identities, each opened when first asked for
doors      who comes in, and what may be sent         visit    one caller at one identity: what they may see and do
openai     /v1/models, /v1/chat/completions           turns    turns that go on when whoever asked has left
native     /v1/sessions, /v1/memories and the like    errors   the one place that knows HTTP status codes

A request passes the doors, which find its `Caller`; the house then opens the identity for them as a `Visit`, with the
least of the caller's and the identity's clearance. Routes reach sessions and memories through the visit alone.
"""

"""The HTTP server, `chatbot serve`: OpenAI-compatible and native routes, and the doors that guard them all.

app        puts the parts together                   identities       each opened when first asked for
doors      who comes in, and what may be sent         identity_access  one caller at one identity
openai     /v1/models, /v1/chat/completions           turns            turns that go on when their client has left
native     /v1/sessions, /v1/memories and the like    errors           the one place that knows HTTP status codes

A request passes the doors, which find its `ServerCaller`; `Identities` then opens the identity as an `IdentityAccess`,
with the least of the caller's and the identity's clearance. Routes reach sessions and memories through it alone.
"""

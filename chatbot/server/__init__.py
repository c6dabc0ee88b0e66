"""The HTTP server, `chatbot serve`: OpenAI-compatible and native routes, with access checks.

app            puts the parts together                identities       open identities, opened on first use
access_checks  access checks and limits of requests   identity_access  one caller's access to one identity
openai         /v1/models, /v1/chat/completions       turns            turns that continue without their client
native         /v1/sessions, /v1/memories and so on   errors           errors as HTTP status codes
bind           the routes that operations declare     page             the web page

A request passes `Envelope`, `AccessChecks`, `RequestBodies`, `Idempotency` and `IdentityUse`, in this order, then its
route. `AccessChecks` finds its `ServerCaller`; `Identities` then opens the identity as an `IdentityAccess`, with
the lower of the caller's and the identity's clearance. Routes reach sessions and memories only through it.
"""

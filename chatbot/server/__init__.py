"""The HTTP server, `chatbot serve`: OpenAI-compatible and native routes, with access checks; `app` puts it together.

A request passes `Envelope`, `AccessChecks`, `RequestBodies`, `Idempotency` and `IdentityUse`, in this order, then its
route. `AccessChecks` finds its `ServerCaller`; `Identities` then opens the identity as an `IdentityAccess`, with
the lower of the caller's and the identity's clearance. Routes reach sessions and memories only through it.
"""

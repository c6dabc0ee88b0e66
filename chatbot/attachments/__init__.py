"""Files and pictures of a message: recognised, read in a bounded process, redacted, and named by links in a transcript.

`read` turns what a user brings into what may be kept and sent; `links` writes and finds the links; `extract` is the
program that takes text out of documents. The bytes are kept in the blobs of a session, see `chatbot.stores.backend`.
"""

"""Backend on PostgreSQL: tables in place of files; every key begins with the identity.

All statements are in `statements`; a test checks that each names the identity of every table that it touches.
"""

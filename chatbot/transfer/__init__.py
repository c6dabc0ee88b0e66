"""Import and export of sessions and memories, backups, and sync between machines.

An imported file is untrusted data: it cannot forge a transcript entry, name a store to load, choose a folder, or widen
what a caller may see.
"""

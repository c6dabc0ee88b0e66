"""The store of memories: `observations.jsonl` is the source of truth, searched through an index in the cache.

To follow a search: `store`, `questions`, `index`, `ranking`, `segments`.
"""

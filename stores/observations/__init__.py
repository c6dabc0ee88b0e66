"""The store of what is remembered: `observations.jsonl` is the truth, and a Whoosh index in the cache finds it again.

store      the contract, for async callers          keeper     the same, blocking: journal, table and search as one
journal    the file of events                       rewriting  what compaction and erasing leave of it
table      what is known of every row in memory     snapshot   the table as a file in the cache
ids        from rows to their ids, and back         visible    which rows a caller may see
search     rows by their words, over                text_index, overlay, segments
sealing    what is checked as it is read            whoosh_files  the only one to know Whoosh
cache      the private folder of all caches
"""

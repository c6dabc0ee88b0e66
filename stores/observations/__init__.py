"""The store of what is remembered: `observations.jsonl` is the truth, an index of arrays in the cache finds it.

store      the contract, for async callers          keeper     the same, blocking: log, table and search as one
log        the journal, a file of events            rewriting  what compaction and erasing leave of it
table      the columns: what is known of every row  snapshot   the table as a file in the cache
ids        from rows to their ids, and back         labels     from labels to rows
search     rows by their words: what is indexed when, over
index      the segments that count and what is in memory only (overlay), ranked by `ranking` over what is `visible`
segments   the arrays of one segment                manifest   which segments count
codec      Whoosh, which writes segments            arrays     the format of every cache, with checksums
columns    questions over whole columns             parts      arrays of which later parts win, over which are
vectors    vectors of meaning                       spoken     what sessions speak of
folder_shelf  the folder that all of these are kept in

To follow a search: store, keeper, search, index, ranking, segments.
"""

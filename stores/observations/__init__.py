"""The store of what is remembered: `observations.jsonl` is the truth, an index of arrays in the cache finds it.

store      the contract, for async callers: questions   writer     changes of the log, and what erasing leaves of it
replica    the rows in this process: log, table, search log_changes  changes of rows: `log_changes`
log        the journal, a file of events                rewriting  lines of a rewritten log
table      the columns: what is known of every row      filters    rows by labels, conditions and time
lookups    rows by id and by label                      visible    rows that one caller may see
snapshot   the table as a file in the cache             columns    questions over whole columns, by NumPy
search     rows by their words: what is indexed when    index      the segments that count, and what is in memory only
ranking    scores over segments and overlay             overlay    rows that no segment holds yet
segments   the arrays of one segment                    manifest   which segments count
codec      Whoosh, which writes segments                arrays     the format of every cache, with checksums
vectors    of meaning, in `row_vectors`                 parts      arrays of which later parts win over earlier ones
spoken     the terms of sessions                        folder_shelf  the folder that all of these are kept in

To follow a search: store, search, index, ranking, segments.
"""

"""The store of memories: `observations.jsonl` is the source of truth, searched through an index in the cache.

store       the contract for async callers, its questions    writer     changes of the log
replica     rows in this process: log, table, snapshot and search
file_log    the journal, a file of events
table       the columns: all properties but the texts        filters    rows by labels, conditions and time
lookups     rows by id, label and caller, and their history  log_union  one log from two, as of two machines
questions   what matches a question, and data for ranking    search     when to index
index       segments, and rows that are only in memory       ranking    scores, and filters over whole columns
segments    arrays of postings                               arrays     the format of every cache, and its list
row_vectors vectors of meaning                               codec      Whoosh, which writes segments

To follow a search: store, questions, index, ranking, segments.
"""

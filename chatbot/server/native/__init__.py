"""Routes of our own: those of operations, and three groups that no operation declares, each with the reason.

administration  all users of a server, backup and sync: the commands `users`, `backup` and `sync` do the same here
agents          messages, blocks of context, batches, keys and files of clients, which a terminal does not need
conversation    a running turn, which is streamed, stopped, taken back and billed, and the files of its session
"""

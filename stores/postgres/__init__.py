"""Backend on PostgreSQL: tables in place of files; every key begins with the identity."""

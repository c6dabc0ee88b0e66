"""Import, export, backups and sync. An imported file is untrusted: it names no store, and widens no access."""

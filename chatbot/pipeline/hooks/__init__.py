"""Our own hooks: one file each, named as in the configuration."""

"""The backend of plain files: the one place that knows which files an identity's memory consists of."""

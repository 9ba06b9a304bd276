"""A user's files: recordings in, windows of them, tables of answers out."""

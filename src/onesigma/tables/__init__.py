"""A user's files in numpy: recordings in, windows of them, tables of answers out."""

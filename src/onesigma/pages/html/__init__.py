"""Pages in one file: the skeleton, its style in light and dark, tables, drawings."""

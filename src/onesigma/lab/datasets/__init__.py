"""Datasets, one file each: where the bytes come from, how they are cut, who is in which split."""

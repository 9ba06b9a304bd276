"""Datasets, one file each: where the bytes come from, how they are cut, who is in which split.

Every reader raises DataError if a file is absent, damaged or not what it should be. The message
names the file and says what to do. `root` is always the folder of the prepared datasets, see
`prepared.data_root`.
"""

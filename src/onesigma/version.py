"""The package's version, read by the build and written into saved files."""

__version__ = "0.2.0"

"""All exceptions, one tree.

    OnesigmaError
    ├── CaptureError      the model could not be captured as a graph
    ├── UnsupportedOp     ops without a rule, all of them at once
    ├── NoRandomness      nothing in the model is random: there is no uncertainty to carry
    ├── ModelError        the model itself is unfit (NaN weights, several outputs, …)
    ├── InputError        an example, a prior or an input of the wrong kind
    ├── FileError         a model's file is truncated, altered or of another format; or a full disk
    ├── ExportError       a file for another runtime cannot be made, or gives other answers
    ├── PackageError      an optional package is not installed
    └── DataError         a dataset is absent or is not what it should be

Each message says what is wrong, where, and what to do about it.
"""


class OnesigmaError(Exception):
    """Base of everything onesigma raises on purpose."""


class CaptureError(OnesigmaError):
    """The model could not be captured as a graph."""


class UnsupportedOp(OnesigmaError):  # noqa: N818  (named for what it is, as in the docs)
    """One or more ops have no rule. The message lists them all, with their source lines."""


class NoRandomness(OnesigmaError):  # noqa: N818
    """No dropout reaches the output and no input prior was given."""


class ModelError(OnesigmaError):
    """The model cannot be converted as it is."""


class InputError(OnesigmaError):
    """An input, an example or a prior does not fit the model."""


class FileError(OnesigmaError):
    """A model's file cannot be read (or not be trusted), or a model cannot be saved."""


class ExportError(OnesigmaError):
    """A file for another runtime cannot be made, or does not agree with PyTorch."""


class PackageError(OnesigmaError, ImportError):
    """An optional package is not installed."""


class DataError(OnesigmaError):
    """A dataset is absent or damaged."""


def install(extra: str) -> str:
    """How to install an optional package; onesigma is on no package index yet."""
    return f"in a clone of the repository, pip install '.[{extra}]'"

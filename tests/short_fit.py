"""``fit``, cut short, for tests of what does not depend on how close it comes to Monte Carlo."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from onesigma import fitting

LENGTHS = {"ROWS": 300, "STEPS": 20, "LONGER": {}, "_REFERENCE": 60, "_MOST_JUDGED": 30}


@contextmanager
def short_fit(**changes: object) -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (LENGTHS | changes).items():
            patch.setattr(fitting, name, value)
        yield patch

"""Names in archives: whatever they are, nothing is written outside."""

from __future__ import annotations

import tarfile

import pytest
from fuzz.harness import answered, examples
from fuzz.samples import read_archive, tarred, zipped
from hypothesis import given
from hypothesis import strategies as st

from onesigma.errors import DataError

HOSTILE = [
    *("..", ".", "", "/", "~", "a", "b/c", "C:", "\\", "..\\x", "\0", "\n"),
    *("a" * 300, "é", "con"),
]
names = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=5), min_size=1, max_size=4)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@examples(100)
@given(
    parts=st.lists(names, min_size=1, max_size=4),
    kind=st.sampled_from([b"zip", tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, b"3", b"6"]),
    size=st.sampled_from([0, 10, 20_000]),
)
def test_names_that_lead_elsewhere(parts, kind, size, tmp_path_factory):
    members = {"/".join(part): b"x" * size for part in parts}
    try:
        content = zipped(members) if kind == b"zip" else tarred(members, kind=kind)
    except (ValueError, UnicodeError):  # not even an attacker can write such a name
        return
    archive = tmp_path_factory.getbasetemp() / "archive"
    archive.write_bytes(content)
    answered(lambda: read_archive(archive), DataError)

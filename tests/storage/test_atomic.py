import errno
import os
from pathlib import Path

import pytest

from onesigma.storage.atomic import remove_leftovers, replacing


def write_half(path: Path) -> None:
    with replacing(path) as temporary:
        temporary.write_text("ne")
        raise RuntimeError("half way")


def test_success_replaces(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_failure_keeps_the_old_file_and_leaves_nothing_behind(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError, match="half way"):
        write_half(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_says_where(tmp_path):
    path = tmp_path / "a.txt"
    with pytest.raises(OSError, match=r"No space left on device: .*a\.txt"), replacing(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert not path.exists()


def test_others_may_read_the_file(tmp_path):
    path = tmp_path / "a.txt"
    with replacing(path) as temporary:
        temporary.write_text("new")
    assert path.stat().st_mode & 0o777 == 0o644


def test_leftovers_of_a_killed_writer_are_removed_and_nothing_else(tmp_path):
    path = tmp_path / "a[1].txt"
    others = [tmp_path / name for name in ("a[1].txt", ".a[1]-b-abcdefgh.txt", ".a[1]-abcdefgh.md")]
    for file in (*others, tmp_path / ".a[1]-abcdefgh.txt"):
        file.write_text("x")
    remove_leftovers(path)
    assert sorted(tmp_path.iterdir()) == sorted(others)
    # The name is that of a real temporary file.
    with replacing(path) as temporary:
        temporary.write_text("half")
        remove_leftovers(path)
        assert not temporary.exists()
        temporary.write_text("whole")
    assert path.read_text() == "whole"

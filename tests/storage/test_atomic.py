import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from onesigma.errors import FileError
from onesigma.storage.atomic import replacing


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def write(path: Path, text: str = "new") -> None:
    with replacing(path) as temporary:
        temporary.write_text(text)


def write_half(path: Path) -> None:
    with replacing(path) as temporary:
        temporary.write_text("ne")
        raise RuntimeError("half way")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_success_replaces(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert temporary.suffix == ".txt"  # some writers ask the name what to write
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
    with pytest.raises(FileError, match=r"a\.txt cannot be written: No space"), replacing(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_is_named(tmp_path):
    path = tmp_path / "none" / "a.txt"
    with pytest.raises(FileError, match=r"none is no folder\. Create it first") as said:
        replacing(path).__enter__()
    assert "onesigma-" not in str(said.value)  # the temporary name


def test_a_failure_of_another_file_stays_what_it_is(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent"), replacing(tmp_path / "a.txt"):
        (tmp_path / "absent").read_text()


def test_places_where_no_file_can_be(tmp_path):
    (tmp_path / "file").touch()
    for name in ("absent/a.txt", "file/a.txt", f"{'x' * 300}.txt"):
        with pytest.raises(FileError, match="cannot be written"):
            write(tmp_path / name)
    with pytest.raises(FileError, match="is a folder"):
        write(tmp_path)


# Permissions


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077, 0o002])
def test_a_new_file_follows_the_umask(tmp_path, umask):
    os.umask(umask)
    write(tmp_path / "a.txt")
    assert mode(tmp_path / "a.txt") == 0o666 & ~umask


@pytest.mark.parametrize("kept", [0o600, 0o640, 0o666, 0o444, 0o755])
def test_an_old_file_keeps_its_permissions(tmp_path, kept):
    path = tmp_path / "a.txt"
    path.write_text("old")
    path.chmod(kept)
    with replacing(path) as temporary:
        assert mode(temporary) == kept | stat.S_IWUSR  # also while it is written
        temporary.write_text("new")
    assert (path.read_text(), mode(path)) == ("new", kept)


# Links, devices and pipes


def test_a_link_stays_and_its_target_is_written(tmp_path):
    (tmp_path / "data").mkdir()
    target, link, second = tmp_path / "data" / "a.txt", tmp_path / "link.txt", tmp_path / "b.txt"
    link.symlink_to("data/a.txt")
    second.symlink_to(link)
    for text in ("new", "newer"):  # first the target does not exist
        write(second, text)
        assert target.read_text() == text
        assert link.readlink() == Path("data/a.txt")
        assert list(target.parent.iterdir()) == [target]


def test_a_link_that_leads_in_a_circle(tmp_path):
    (tmp_path / "a.txt").symlink_to("a.txt")
    with pytest.raises(FileError, match=r"a\.txt.* leads in a circle"):
        write(tmp_path / "a.txt")
    assert (tmp_path / "a.txt").is_symlink()


def test_a_device_is_written_to(tmp_path):
    write(Path(os.devnull))
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    (tmp_path / "link.txt").symlink_to("/dev/full")
    with pytest.raises(FileError, match=r"link\.txt cannot be written: No space"):
        write(tmp_path / "link.txt")


def test_a_pipe_gets_all_or_nothing(tmp_path):
    pipe = tmp_path / "a.txt"
    os.mkfifo(pipe)
    with pytest.raises(RuntimeError, match="half way"):  # nobody reads, and it does not wait
        write_half(pipe)
    with ThreadPoolExecutor(1) as other:
        read = other.submit(pipe.read_text)
        write(pipe, "new" * 50_000)
        assert read.result() == "new" * 50_000
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_standard_output_is_written_to(tmp_path):
    program = """
from pathlib import Path
from onesigma.storage.atomic import replacing
with replacing(Path("/dev/stdout")) as temporary:
    temporary.write_text("new")
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert done.stdout == b"new"


# Leftovers of killed runs

KILLED = """
import os, signal, sys
from pathlib import Path
from onesigma.storage.atomic import replacing
with replacing(Path(sys.argv[1])) as temporary:
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_leftovers_of_a_killed_writer_are_removed_and_nothing_else(tmp_path):
    path = tmp_path / "a[1].txt"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    (leftover,) = tmp_path.iterdir()
    others = [
        tmp_path / name
        for name in (
            ".a1.onesigma-12345678.txt",
            ".a[1]-12345678.txt",
            ".a[1].onesigma-notours8.txt",
        )
    ]
    for file in others:
        file.write_text("x")
    write(path)
    assert not leftover.exists()
    assert sorted(tmp_path.iterdir()) == sorted([path, *others])


def test_the_file_of_a_writer_that_lives_is_left_alone(tmp_path):
    path = tmp_path / "a.txt"
    with replacing(path) as temporary:
        temporary.write_text("first")
        write(path, "second")
        assert temporary.read_text() == "first"
        assert path.read_text() == "second"
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


def test_many_writers_at_once(tmp_path):
    path, start = tmp_path / "a.txt", threading.Barrier(4)

    def write_often(who: int) -> None:
        start.wait()
        for _ in range(50):
            write(path, str(who) * 1000)

    with ThreadPoolExecutor(4) as others:
        list(others.map(write_often, range(4)))
    assert path.read_text() in {str(who) * 1000 for who in range(4)}
    assert list(tmp_path.iterdir()) == [path]


def test_content_reaches_the_disk_before_the_name(tmp_path, monkeypatch):
    """A power cut after the rename must not show an empty file."""
    path, steps = tmp_path / "a.txt", []
    sync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        steps.append(f"sync {os.fstat(handle).st_size}")
        sync(handle)

    def replaced(*names: object) -> None:
        steps.append("replace")
        replace(*names)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    write(path)
    assert steps == ["sync 3", "replace"]

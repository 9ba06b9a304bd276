import errno
import io
import random
import shutil
import tarfile
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
from onesigma.lab.datasets.archive import extract

from onesigma.errors import DataError

FILES = {"a.txt": b"alpha", "deep/er/b.bin": bytes(range(256)) * 50, "empty": b""}


def write_zip(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return path


def write_tar(path, files, mode="w:gz"):
    with tarfile.open(path, mode) as file:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    return path


def content(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def place(tmp_path):
    return tmp_path / "new" / "unpacked"


def refused(archive, place, message):
    """Refused with a clear error, and nothing left behind."""
    with pytest.raises(DataError, match=message):
        extract(archive, place)
    assert not place.exists()
    assert list(place.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("x.zip", write_zip),
        ("x.tar.gz", write_tar),
        ("x.tar", lambda path, files: write_tar(path, files, "w")),
        ("x.tar.xz", lambda path, files: write_tar(path, files, "w:xz")),
    ],
)
def test_what_went_in_comes_out(tmp_path, place, name, write):
    archive = write(tmp_path / name, FILES)
    assert extract(archive, place) == place
    assert content(place) == FILES
    assert list(place.parent.iterdir()) == [place]


def test_members_may_begin_with_a_dot_and_folders_be_listed(tmp_path, place):
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as file:
        for name in (".", "./yes"):
            folder = tarfile.TarInfo(name)
            folder.type = tarfile.DIRTYPE
            file.addfile(folder)
        member = tarfile.TarInfo("./yes/a.wav")
        member.size = 3
        file.addfile(member, io.BytesIO(b"abc"))
    extract(path, place)
    assert content(place) == {"yes/a.wav": b"abc"}


def test_an_archive_in_the_archive_is_unpacked_in_its_place(tmp_path, place):
    inner = write_zip(tmp_path / "inner.zip", {"In ner/c.csv": b"1,2"})
    files = {"inner.zip": inner.read_bytes(), "other.zip": b"not asked for"}
    extract(write_zip(tmp_path / "x.zip", files), place, inner="inner.zip")
    assert content(place) == {"In ner/c.csv": b"1,2", "other.zip": b"not asked for"}


def test_an_inner_archive_that_is_not_there_is_not_missed(tmp_path, place):
    extract(write_zip(tmp_path / "x.zip", FILES), place, inner="inner.zip")
    assert content(place) == FILES


def test_only_what_is_wanted(tmp_path, place):
    archive = write_tar(tmp_path / "x.tgz", {f"./{name}": data for name, data in FILES.items()})
    extract(archive, place, wanted=lambda name: name.startswith("deep/"))
    assert set(content(place)) == {"deep/er/b.bin"}


def test_a_folder_that_is_there_is_kept(tmp_path, place):
    place.mkdir(parents=True)
    (place / "mine").write_text("kept")
    extract(write_zip(tmp_path / "x.zip", FILES), place)
    assert content(place) == {"mine": b"kept"}


@pytest.mark.parametrize("write", [write_zip, lambda path, files: write_tar(path, files, "w")])
@pytest.mark.parametrize(
    "name", ["../out.txt", "a/../../out.txt", "/tmp/out.txt", "..\\out.txt", "C:\\out.txt", "c:x"]
)
def test_nothing_leads_out_of_the_folder(tmp_path, place, write, name):
    refused(write(tmp_path / "x", {"first": b"1", name: b"2"}), place, "leads out")
    assert not (place.parent / "out.txt").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_in_a_tar_are_refused(tmp_path, place, kind):
    path = write_tar(tmp_path / "x.tar", {"first": b"1"}, "w")
    with tarfile.open(path, "a") as file:
        member = tarfile.TarInfo("link")
        member.type, member.linkname = kind, "first"
        file.addfile(member)
    refused(path, place, "link or device, link")


def test_links_in_a_zip_are_refused(tmp_path, place):
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as file:
        member = zipfile.ZipInfo("link")
        member.external_attr = 0o120777 << 16
        file.writestr(member, "/etc/hostname")
    refused(path, place, "a link, link")


def test_a_bomb_is_stopped_while_it_goes_off(tmp_path, place):
    archive = write_zip(tmp_path / "x.zip", {"zeros": bytes(3_000_000)})
    assert archive.stat().st_size < 5_000
    with pytest.raises(DataError, match="more than it should"):
        extract(archive, place, most_bytes=2_000_000)
    assert list(place.parent.iterdir()) == []


def test_a_bomb_inside_counts_with_what_was_unpacked_before(tmp_path, place):
    inner = write_zip(tmp_path / "inner.zip", {"zeros": bytes(1_500_000)}).read_bytes()
    archive = write_zip(tmp_path / "x.zip", {"inner.zip": inner, "more": bytes(600_000)})
    with pytest.raises(DataError, match="more than it should"):
        extract(archive, place, inner="inner.zip", most_bytes=2_000_000)
    assert list(place.parent.iterdir()) == []


def test_too_many_files_are_refused(tmp_path, place):
    with pytest.raises(DataError, match="more than it should"):
        extract(write_zip(tmp_path / "x.zip", FILES), place, most_files=2)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_comes_twice_is_refused(tmp_path, place):
    path = write_zip(tmp_path / "x.zip", {"same": b"1"})
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("same", b"2")
    refused(path, place, "cannot be unpacked")


@pytest.mark.parametrize("name", ["x.zip", "x.tar.gz", "x.tar"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.7])
def test_truncated_archives_are_refused(tmp_path, place, name, share):
    files = {"noise": b"".join(i.to_bytes(4, "big") for i in range(0, 10**9, 9973))}
    if name.endswith("zip"):
        path = write_zip(tmp_path / name, files)
    else:
        path = write_tar(tmp_path / name, files, "w:gz" if name.endswith("gz") else "w")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    refused(path, place, "incomplete")


def test_a_flipped_bit_is_found(tmp_path, place):
    path = write_zip(tmp_path / "x.zip", FILES)
    spoilt = bytearray(path.read_bytes())
    spoilt[spoilt.index(b"a.txt") + 6] ^= 4
    path.write_bytes(spoilt)
    refused(path, place, "damaged")


def test_a_zip_with_a_password_is_refused(tmp_path, place):
    path = write_zip(tmp_path / "x.zip", {"a": b"1"})
    marked = bytearray(path.read_bytes())
    # The flag "encrypted", in the member's own header and in the directory.
    marked[6] |= 1
    marked[marked.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(marked)
    refused(path, place, "password")


def test_a_full_disk_leaves_nothing(tmp_path, place, monkeypatch):
    archive = write_zip(tmp_path / "x.zip", FILES)
    opened = Path.open

    def open_full(path, mode="r", **options):
        if mode == "xb" and path.name == "b.bin":
            raise OSError(errno.ENOSPC, "No space left on device")
        return opened(path, mode, **options)

    monkeypatch.setattr(Path, "open", open_full)
    refused(archive, place, "disk is full")


def test_an_interrupt_leaves_nothing(tmp_path, place, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    archive = write_zip(tmp_path / "x.zip", FILES)
    monkeypatch.setattr(Path, "rename", interrupt)
    with pytest.raises(KeyboardInterrupt):
        extract(archive, place)
    assert list(place.parent.iterdir()) == []


def test_the_folder_may_be_read_by_others(tmp_path, place):
    extract(write_zip(tmp_path / "x.zip", FILES), place)
    assert place.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(("name", "write"), [("x.zip", write_zip), ("x.tar.gz", write_tar)])
def test_damage_anywhere_is_refused_or_harmless(tmp_path, place, name, write):
    whole = write(tmp_path / name, FILES).read_bytes()
    for seed in range(300):
        chance, changed = random.Random(seed), bytearray(whole)
        for _ in range(chance.choice((1, 3, 20))):
            changed[chance.randrange(len(whole))] = chance.randrange(256)
        (tmp_path / name).write_bytes(changed)
        with suppress(DataError):
            shutil.rmtree(extract(tmp_path / name, place))
        assert list(place.parent.iterdir()) == []

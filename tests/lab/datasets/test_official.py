"""Official archives: fetched and verified, unpacked safely, found again."""

import errno
import gzip
import hashlib
import io
import random
import shutil
import socket
import tarfile
import threading
import zipfile
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from onesigma.errors import DataError
from onesigma.lab.datasets import official
from onesigma.lab.datasets.official import cache_folder, download, extract

CONTENT = np.random.default_rng(0).bytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """A server with the habits its path names; it counts what it was asked for."""

    def do_GET(self):
        self.server.asked += 1
        if self.path == "/missing":
            return self.send_error(404)
        self.send_response(200)
        if self.path != "/no-length":
            self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[:120_000] if self.path == "/breaks-off" else CONTENT)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def running():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        made.address = f"http://127.0.0.1:{made.server_port}"
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def server(running, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    running.asked = 0
    return running


@pytest.fixture
def target(tmp_path):
    return tmp_path / "new" / "data.bin"


def fetch(server, path, target, **known):
    return download(server.address + path, target, progress=False, **known)


def test_a_whole_file(server, target):
    assert fetch(server, "/whole", target, size=300_000, sha256=SHA256) == target
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]


def test_a_file_that_is_there_is_not_fetched_again(server, target):
    fetch(server, "/whole", target, sha256=SHA256)
    fetch(server, "/whole", target, sha256=SHA256)
    assert server.asked == 1


def test_a_file_that_is_there_but_wrong_is_not_taken_and_not_replaced(server, target):
    target.parent.mkdir()
    target.write_bytes(b"by hand")
    with pytest.raises(DataError, match=r"not the published file.*Delete"):
        fetch(server, "/whole", target, sha256=SHA256)
    assert target.read_bytes() == b"by hand"
    assert server.asked == 0


def test_a_broken_connection_leaves_nothing(server, target):
    with pytest.raises(DataError, match=r"Cannot fetch from 127.0.0.1.*Try again"):
        fetch(server, "/breaks-off", target)
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize("path", ["/whole", "/no-length"])
def test_other_bytes_than_published_leave_nothing(server, target, path):
    with pytest.raises(DataError, match="not the published file"):
        fetch(server, path, target, sha256="0" * 64)
    assert list(target.parent.iterdir()) == []


def test_another_size_than_published_is_refused_before_it_is_sent(server, target):
    with pytest.raises(DataError, match="300000 bytes instead of 299999"):
        fetch(server, "/whole", target, size=299_999)
    assert list(target.parent.iterdir()) == []


def test_a_server_that_states_no_length_cannot_send_without_end(server, target):
    with pytest.raises(DataError, match="more bytes than it should"):
        fetch(server, "/no-length", target, size=100_000)
    assert list(target.parent.iterdir()) == []


def test_a_missing_file_says_so(server, target):
    with pytest.raises(DataError, match=r"answered 404.*put it at .*data\.bin"):
        fetch(server, "/missing", target)
    assert list(target.parent.iterdir()) == []


def test_without_a_network_it_says_what_to_do(target, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(DataError, match=r"Is there a network\?.* Or fetch .* and put it at"):
        download(f"http://127.0.0.1:{port}/file", target, progress=False)


def test_a_full_disk_says_so(server, target, monkeypatch):
    def fill(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(official.pooch, "retrieve", fill)
    with pytest.raises(DataError, match="disk is full"):
        fetch(server, "/whole", target)


def test_other_schemes_are_refused(target):
    with pytest.raises(DataError, match="Cannot fetch"):
        download("file:///etc/hostname", target, progress=False)


def test_the_bar_is_on_standard_error(server, target, capsys):
    download(server.address + "/whole", target)
    assert "300k/300k" in capsys.readouterr().err


def test_the_environment_names_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("ONESIGMA_CACHE", str(tmp_path / "named"))
    assert cache_folder() == tmp_path / "named"
    monkeypatch.delenv("ONESIGMA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder().name == "onesigma"


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
    for seed in range(60):
        chance, changed = random.Random(seed), bytearray(whole)
        for _ in range(chance.choice((1, 3, 20))):
            changed[chance.randrange(len(whole))] = chance.randrange(256)
        (tmp_path / name).write_bytes(changed)
        with suppress(DataError):
            shutil.rmtree(extract(tmp_path / name, place))
        assert list(place.parent.iterdir()) == []


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ONESIGMA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(official, "download", lambda *_, **__: pytest.fail("went to the network"))
    return tmp_path / "cache"


def zipped(files):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, content in files.items():
            file.writestr(name, content)
    return stream.getvalue()


def serve(monkeypatch, content):
    """A download that delivers `content`, and what it was asked for."""
    asked = {}

    def download(url, destination, **options):
        asked.update(url=url, destination=destination, **options)
        destination.parent.mkdir(parents=True, exist_ok=True)
        destination.write_bytes(content)
        return destination

    monkeypatch.setattr(official, "download", download)
    return asked


def test_hhar_is_an_archive_in_an_archive(cache, monkeypatch):
    inner = zipped({"Activity recognition exp/Phones_accelerometer.csv": b"rows"})
    outer = zipped({"Activity recognition exp.zip": inner, "Still exp.zip": b"not wanted"})
    asked = serve(monkeypatch, outer)
    folder = official.fetch("hhar", progress=False)
    assert folder == cache / "hhar" / "Activity recognition exp"
    assert (folder / "Phones_accelerometer.csv").read_bytes() == b"rows"
    assert not list(cache.rglob("Still*"))
    assert asked["destination"] == cache / "archives" / "heterogeneity+activity+recognition.zip"
    assert asked["url"].startswith("https://archive.ics.uci.edu/static/public/344/")
    assert not asked["progress"]


def test_hhar_may_be_nested_twice(cache, tmp_path):
    nested = tmp_path / "root" / "Activity recognition exp" / "Activity recognition exp"
    nested.mkdir(parents=True)
    (nested / "Phones_accelerometer.csv").write_text("rows")
    assert official.find("hhar", tmp_path / "root") == nested


def test_the_excerpt_of_hhar_is_not_taken_for_hhar(cache, tmp_path):
    folder = tmp_path / "root" / "hhar_excerpt" / "official_head"
    folder.mkdir(parents=True)
    (folder / "Phones_accelerometer.csv").write_text("rows")
    assert official.find("hhar", tmp_path / "root") is None


@pytest.mark.parametrize("nested", [False, True])
def test_opportunity_with_or_without_an_inner_archive(cache, monkeypatch, nested):
    content = zipped({"OpportunityUCIDataset/dataset/S1-ADL1.dat": b"rows"})
    serve(monkeypatch, zipped({"OpportunityUCIDataset.zip": content}) if nested else content)
    folder = official.fetch("opportunity")
    assert folder == cache / "opportunity" / "OpportunityUCIDataset" / "dataset"


def test_speech_is_a_tar_of_members_with_a_dot(cache, monkeypatch):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as file:
        member = tarfile.TarInfo("./yes/a_nohash_0.wav")
        member.size = 4
        file.addfile(member, io.BytesIO(b"RIFF"))
    asked = serve(monkeypatch, stream.getvalue())
    folder = official.fetch("speech")
    assert (folder / "yes" / "a_nohash_0.wav").read_bytes() == b"RIFF"
    assert asked["size"] == 112_563_277
    assert len(asked["sha256"]) == 64


def test_of_esc_only_sound_table_and_licence_are_kept(cache, monkeypatch):
    files = ("meta/esc50.csv", "audio/1-1-A-1.wav", "LICENSE", "README.md", "tests/t.py")
    serve(monkeypatch, zipped({f"ESC-50-master/{name}": name for name in files}))
    folder = official.fetch("esc")
    kept = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    assert kept == {"meta/esc50.csv", "audio/1-1-A-1.wav", "LICENSE"}


def test_what_is_unpacked_is_not_fetched_again(cache):
    folder = cache / "opportunity" / "OpportunityUCIDataset" / "dataset"
    folder.mkdir(parents=True)
    (folder / "S1-ADL1.dat").write_text("rows")
    assert official.fetch("opportunity") == folder


def test_an_archive_fetched_by_hand_is_taken(cache, tmp_path, monkeypatch):
    asked = serve(monkeypatch, b"")
    content = zipped({"OpportunityUCIDataset/dataset/S1-ADL1.dat": b"rows"})
    path = tmp_path / "opportunity+activity+recognition.zip"
    path.write_bytes(content)
    # What is there is handed to download all the same, which checks it.
    monkeypatch.setattr(
        official, "download", lambda url, path, **_: asked.update(path=path) or path
    )
    folder = official.fetch("opportunity", tmp_path)
    assert asked["path"] == path
    assert folder == cache / "opportunity" / "OpportunityUCIDataset" / "dataset"


def test_another_archive_leaves_nothing_unpacked(cache, monkeypatch):
    serve(monkeypatch, zipped({"other/file": b"1"}))
    with pytest.raises(DataError, match="does not hold OpportunityUCIDataset"):
        official.fetch("opportunity")
    assert [p.name for p in cache.iterdir()] == ["archives"]


def test_the_checksum_behind_a_tar_file_is_read(tmp_path):
    """tarfile stops at the end of the archive, before the CRC of gzip."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        member = tarfile.TarInfo("a.bin")
        member.size = 3000
        archive.addfile(member, io.BytesIO(bytes(3000)))
    good = content.getvalue()
    (tmp_path / "a.tar.gz").write_bytes(good)
    assert (extract(tmp_path / "a.tar.gz", tmp_path / "good") / "a.bin").stat().st_size == 3000
    for place in (-8, -4):  # the CRC, the length
        damaged = bytearray(good)
        damaged[place] ^= 1
        (tmp_path / "a.tar.gz").write_bytes(damaged)
        with pytest.raises(DataError, match="damaged"):
            extract(tmp_path / "a.tar.gz", tmp_path / "bad")
        assert not (tmp_path / "bad").exists()


def test_more_behind_a_tar_file_than_its_end(tmp_path):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a"), io.BytesIO())
    with gzip.open(tmp_path / "a.tar.gz", "wb") as file:
        file.write(content.getvalue() + bytes(2 << 20))
    with pytest.raises(DataError, match="more than a tar file"):
        extract(tmp_path / "a.tar.gz", tmp_path / "bad")


def test_a_zip_file_that_lost_members_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("a", "b"):
            archive.writestr(name, name)
    whole = (tmp_path / "a.zip").read_bytes()
    second = whole.index(b"PK\x01\x02", whole.index(b"PK\x01\x02") + 1)
    lost = bytearray(whole)
    lost[second - 47 + 32 : second - 47 + 34] = b"\xff\x00"  # a comment that swallows the next one
    (tmp_path / "a.zip").write_bytes(lost)
    with pytest.raises(DataError, match="damaged"):
        extract(tmp_path / "a.zip", tmp_path / "bad")
    with zipfile.ZipFile(tmp_path / "empty.zip", "w"):
        pass
    with pytest.raises(DataError, match="holds 0 of 0 files"):
        extract(tmp_path / "empty.zip", tmp_path / "bad")

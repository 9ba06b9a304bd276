import errno
import hashlib
import re
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from onesigma.lab.datasets.download import download

from onesigma.errors import DataError
from onesigma.lab.datasets import download as module

CONTENT = np.random.default_rng(0).bytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """A server with the habits its path names; it notes the ranges asked for."""

    def do_GET(self):
        asked = self.headers.get("Range")
        self.server.ranges.append(asked)
        start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked else 0
        if self.path == "/missing":
            return self.send_error(404)
        if start and self.path in ("/ignores-range", "/no-length"):
            start, asked = 0, None
        if start >= len(CONTENT):
            return self.refuse_range()
        body = CONTENT[start:]
        self.send_response(206 if asked else 200)
        if asked:
            shift = 5 if self.path == "/other-range" else 0
            self.send_header("Content-Range", f"bytes {start + shift}-{len(CONTENT) - 1}/300000")
        if self.path != "/no-length":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.path == "/breaks-off":
            body = body[:120_000]
        if self.path == "/stuck":
            body = body[: max(100_000 - start, 0)]
        self.wfile.write(body)

    def refuse_range(self):
        self.send_response(416)
        self.send_header("Content-Range", f"bytes */{len(CONTENT)}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        made.ranges = []
        made.address = f"http://127.0.0.1:{made.server_port}"
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def target(tmp_path):
    return tmp_path / "new" / "data.bin"


def part(target):
    return target.with_name("data.bin.part")


def begin(target, content):
    target.parent.mkdir()
    part(target).write_bytes(content)


def fetch(server, path, target, **known):
    return download(server.address + path, target, progress=False, **known)


def test_a_whole_file(server, target):
    assert fetch(server, "/whole", target, size=300_000, sha256=SHA256) == target
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]


def test_a_file_that_is_there_is_not_fetched_again(server, target):
    fetch(server, "/whole", target, sha256=SHA256)
    fetch(server, "/whole", target, sha256=SHA256)
    assert len(server.ranges) == 1


def test_a_file_that_is_there_but_wrong_is_not_taken(server, target):
    target.parent.mkdir()
    target.write_bytes(b"by hand")
    with pytest.raises(DataError, match=r"7 bytes instead of 300,000\. Delete"):
        fetch(server, "/whole", target, size=300_000)
    assert target.read_bytes() == b"by hand"


def test_it_goes_on_where_it_broke_off(server, target):
    begin(target, CONTENT[:100_000])
    fetch(server, "/whole", target, sha256=SHA256)
    assert server.ranges == ["bytes=100000-"]
    assert target.read_bytes() == CONTENT


def test_a_server_that_ignores_ranges_sends_it_all_again(server, target):
    begin(target, CONTENT[:100_000])
    fetch(server, "/ignores-range", target)
    assert target.read_bytes() == CONTENT


def test_a_broken_connection_is_resumed_at_once(server, target):
    fetch(server, "/breaks-off", target, sha256=SHA256)
    assert server.ranges == [None, "bytes=120000-", "bytes=240000-"]
    assert target.read_bytes() == CONTENT


def test_a_cut_file_is_an_error_and_kept_for_the_next_call(server, target):
    with pytest.raises(DataError, match="100,000 of 300,000 bytes arrived"):
        fetch(server, "/stuck", target)
    assert not target.exists()
    assert part(target).read_bytes() == CONTENT[:100_000]
    fetch(server, "/whole", target, sha256=SHA256)
    assert server.ranges[-1] == "bytes=100000-"


def test_a_part_that_is_complete_needs_no_byte_more(server, target):
    begin(target, CONTENT)
    fetch(server, "/whole", target, sha256=SHA256)
    assert target.read_bytes() == CONTENT


def test_a_part_longer_than_the_file_is_dropped(server, target):
    begin(target, CONTENT + b"more")
    fetch(server, "/whole", target, sha256=SHA256)
    assert server.ranges == ["bytes=300004-", None]
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("path", ["/whole", "/no-length"])
def test_other_bytes_than_published_leave_nothing(server, target, path):
    with pytest.raises(DataError, match="not the published file"):
        fetch(server, path, target, sha256="0" * 64)
    assert list(target.parent.iterdir()) == []


def test_a_part_of_another_file_is_found_out(server, target):
    begin(target, b"x" * 100_000)
    with pytest.raises(DataError, match="not the published file"):
        fetch(server, "/whole", target, sha256=SHA256)
    assert list(target.parent.iterdir()) == []


def test_another_size_than_published_is_refused_before_it_is_sent(server, target):
    with pytest.raises(DataError, match=r"300,000 bytes instead of 299,999"):
        fetch(server, "/whole", target, size=299_999)
    assert not target.exists()


def test_a_file_cut_short_without_a_stated_length_is_told_by_its_size(server, target):
    with pytest.raises(DataError, match="300,000 of 400,000 bytes arrived"):
        fetch(server, "/no-length", target, size=400_000)
    assert not target.exists()


def test_another_range_than_asked_for_is_not_appended(server, target):
    begin(target, CONTENT[:10])
    with pytest.raises(DataError, match="another part"):
        fetch(server, "/other-range", target)
    assert part(target).read_bytes() == CONTENT[:10]


def test_a_missing_file_says_so(server, target):
    with pytest.raises(DataError, match=r"answered 404.*put it at .*data\.bin"):
        fetch(server, "/missing", target)
    assert list(target.parent.iterdir()) == []


def test_without_a_network_it_says_what_to_do(target, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(DataError, match=r"Is there a network\? Or fetch .* and put it at"):
        download(f"http://127.0.0.1:{port}/file", target, progress=False)


def test_a_full_disk_says_so_and_what_came_stays(server, target, monkeypatch):
    class Full:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

        def write(self, block):
            self.file.write(block[:1000])
            raise OSError(errno.ENOSPC, "No space left on device")

    opened = Path.open

    def open_full(path, mode="r", **options):
        file = opened(path, mode, **options)
        return Full(file) if "b" in mode and path.suffix == ".part" and mode != "rb" else file

    monkeypatch.setattr(Path, "open", open_full)
    with pytest.raises(DataError, match="disk is full: 1,000 bytes"):
        fetch(server, "/whole", target)
    assert not target.exists()
    assert len(server.ranges) == 1


def test_other_schemes_are_refused(target):
    with pytest.raises(ValueError, match="http"):
        download("file:///etc/hostname", target)


def test_the_bar_counts_every_byte_and_is_optional(server, target, capsys, monkeypatch):
    begin(target, CONTENT[:100_000])
    download(server.address + "/whole", target)
    assert "293k/293k" in capsys.readouterr().err
    target.unlink()
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert download(server.address + "/whole", target).read_bytes() == CONTENT
    assert capsys.readouterr().err == ""


def test_the_number_of_attempts_is_limited(server, target, monkeypatch):
    monkeypatch.setattr(module, "ATTEMPTS", 2)
    with pytest.raises(DataError, match="240,000 of 300,000"):
        fetch(server, "/breaks-off", target)
    assert len(server.ranges) == 2

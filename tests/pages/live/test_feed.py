"""Each kind of source, as instants."""

import os
import socket
import wave
from itertools import islice

import numpy as np
import pytest

from onesigma.errors import DataError, InputError
from onesigma.pages.live.feed import open_feed

ROWS = [[1, 2], [3, 4], [5, 6]]


def numbers(feed, count=None):
    return [instant.tolist() for instant in islice(feed.instants, count)]


def test_text_with_a_header_and_damage(tmp_path):
    file = tmp_path / "run.csv"
    file.write_text("\ufeffacc,gyro\n1,2\nbroken\n3,4\n5,6")  # Excel begins files so
    feed = open_feed(str(file), 2)
    assert feed.lines.names == ["acc", "gyro"]  # before anything is played
    assert numbers(feed) == ROWS
    assert (feed.title, feed.recorded, feed.lines.bad) == ("run.csv", True, 1)


def test_columns_of_a_recording(tmp_path):
    file = tmp_path / "run.csv"
    file.write_text("t,x,label,y\n0,1,9,2\n1,3,9,4\n2,5,9,6\n")
    assert numbers(open_feed(str(file), 2, columns=["x", "y"])) == ROWS
    np.save(tmp_path / "run.npy", [[0, 1, 9, 2], [1, 3, 9, 4], [2, 5, 9, 6]])
    assert numbers(open_feed(str(tmp_path / "run.npy"), 2, columns=["1", "3"])) == ROWS


def test_an_array(tmp_path):
    np.save(tmp_path / "run.npy", np.array(ROWS, np.int16))
    feed = open_feed(str(tmp_path / "run.npy"), 2)
    assert numbers(feed) == ROWS
    assert feed.recorded
    assert feed.lines is None


def test_sound_says_its_own_rate(tmp_path):
    with wave.open(str(tmp_path / "run.wav"), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.array([[0, 16384], [-32768, 0]], "<i2").tobytes())
    feed = open_feed(str(tmp_path / "run.wav"), 2)
    assert feed.rate == 8000
    assert numbers(feed) == [[0, 0.5], [-1, 0]]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("absent.csv", None, "no such file"),
        ("absent.npy", None, "no such file"),
        ("empty.csv", b"", "no line of 2 numbers"),
        ("three.csv", b"1,2,3\n4,5,6\n", "Choose columns"),
        ("words.txt", b"one\ntwo\nthree\n", "no line of 2 numbers"),
        ("damaged.npy", b"not an array", "cannot be read as a .npy array"),
    ],
)
def test_a_recording_that_does_not_fit_is_refused_at_once(tmp_path, name, content, says):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=says):
        open_feed(str(tmp_path / name), 2)


def test_a_folder_is_no_recording(tmp_path):
    with pytest.raises(DataError, match="no such file or device"):
        open_feed(str(tmp_path), 2)


def test_an_array_of_other_width(tmp_path):
    np.save(tmp_path / "run.npy", np.zeros((5, 3)))
    with pytest.raises(DataError, match="expected rows of 2 channels"):
        open_feed(str(tmp_path / "run.npy"), 2)


def test_udp_on_loopback():
    feed = open_feed("udp:0", 2)
    port = int(feed.title.removeprefix("UDP port "))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for text in (b"1,2", b"\x00\xff", b"3,4\n5,6\n"):
            sender.sendto(text, ("127.0.0.1", port))
    assert numbers(feed, 3) == ROWS
    assert (feed.recorded, feed.lines.bad) == (False, 1)
    with pytest.raises(InputError, match="this port cannot be listened on"):
        open_feed(f"udp:{port}", 2)  # taken
    feed.instants.close()


@pytest.mark.parametrize("name", ["udp:", "udp:x", "udp:-1", "udp:70000"])
def test_no_such_port(name):
    with pytest.raises(InputError, match="this port cannot be listened on"):
        open_feed(name, 2)


def test_a_serial_line():
    far, near = os.openpty()
    feed = open_feed(os.ttyname(near), 2, baud=9600)
    os.write(far, b"7\r\n1,2\r\n3,4\r\n5,6\r\n")  # one often comes in the middle of a line
    assert numbers(feed, 3) == ROWS
    assert (feed.recorded, feed.lines.bad) == (False, 1)
    os.close(far)  # unplugged
    os.close(near)
    assert next(feed.instants, None) is None


def test_a_serial_line_of_no_such_rate():
    far, near = os.openpty()
    with pytest.raises(InputError, match="--baud 12345"):
        open_feed(os.ttyname(near), 2, baud=12345)
    os.close(far)
    os.close(near)


def test_a_named_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)  # opened for both, so that neither side waits for the other
    os.write(writer, b"1,2\n3,4\n5,6\n")
    feed = open_feed(str(pipe), 2)
    os.close(writer)
    assert numbers(feed) == ROWS
    assert not feed.recorded

"""Damaged files of arrays: an error that says so, whatever numpy and zipfile make of them."""

import random

import numpy as np
import pytest
from onesigma.tables.arrays import read_batch

from onesigma.errors import DataError
from onesigma.lab.datasets.prepared import read_npz


def damaged(content, seed):
    """Cut short, or with a few bytes changed."""
    chance, changed = random.Random(seed), bytearray(content)
    if seed % 4 == 0:
        return content[: chance.randrange(len(content))]
    for _ in range(chance.choice((1, 3, 20))):
        changed[chance.randrange(len(content))] = chance.randrange(256)
    return bytes(changed)


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_a_damaged_npz_is_refused_or_harmless(write, tmp_path):
    path = tmp_path / "set" / "file.npz"
    path.parent.mkdir()
    write(path, x=np.arange(600, dtype=np.int16) % 97, names=np.array(["a", "bb"]))
    content, refused = path.read_bytes(), 0
    for seed in range(400):
        path.write_bytes(damaged(content, seed))
        try:
            read_npz(tmp_path, "set/file.npz", ("x", "names"))
        except DataError:
            refused += 1
    assert refused > 350


def test_a_damaged_npy_is_refused_or_harmless(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.arange(12.0).reshape(4, 3))
    content, refused = path.read_bytes(), 0
    for seed in range(400):
        path.write_bytes(damaged(content, seed))
        try:
            read_batch(path)
        except DataError:
            refused += 1
    assert refused > 200


def test_a_header_that_states_more_than_all_memory_is_refused(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((4, 3)))
    shape, larger = b"(4, 3), }" + 13 * b" ", b"(4" + 13 * b"0" + b", 3), }"
    assert shape in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(shape, larger))
    with pytest.raises(DataError, match=r"x\.npy"):
        read_batch(path)


@pytest.mark.parametrize("array", [np.array(1.0), np.array(["a"]), np.zeros(2, dtype=complex)])
def test_what_is_no_batch_of_numbers_is_refused(array, tmp_path):
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(DataError, match="numbers"):
        read_batch(tmp_path / "x.npy")


def test_a_batch_of_numbers_is_read(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6.0).reshape(2, 3))
    batch = read_batch(tmp_path / "x.npy")
    assert batch.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert str(batch.dtype) == "torch.float32"

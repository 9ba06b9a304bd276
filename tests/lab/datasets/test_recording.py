import numpy as np
import pytest
from onesigma.lab.datasets.recording import Recording, read_recordings, triads_of, write_recordings

from onesigma.errors import DataError


def recording(n, user="a", name=""):
    generator = np.random.default_rng(n)
    signal = generator.normal(size=(n, 6)).astype(np.float32)
    return Recording(signal, 40.0, generator.integers(-1, 6, size=n), user, triads_of(6), name)


def test_triads_are_one_after_the_other():
    assert triads_of(9) == ((0, 1, 2), (3, 4, 5), (6, 7, 8))


def test_it_lasts_as_long_as_it_has_instants():
    assert recording(100).seconds == 2.5


@pytest.mark.parametrize("labels", [np.zeros(3, np.int64), np.zeros((4, 1), np.int64)])
def test_labels_must_fit(labels):
    with pytest.raises(ValueError, match="labels"):
        Recording(np.zeros((4, 3), np.float32), 1.0, labels, "a", ())


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "new" / "kept.npz"
    written = [recording(7, "a", "first"), recording(30, "b", "second")]
    write_recordings(path, written)
    assert list(path.parent.iterdir()) == [path]
    for one, other in zip(read_recordings(path), written, strict=True):
        assert np.array_equal(one.signal, other.signal)
        assert one.signal.dtype == np.float32
        assert np.array_equal(one.labels, other.labels)
        kept = [(r.rate, r.user, r.triads, r.name) for r in (one, other)]
        assert kept[0] == kept[1]


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "kept.npz"
    write_recordings(path, [recording(100)])
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(DataError, match="Delete it"):
        read_recordings(path)

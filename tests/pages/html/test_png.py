"""Pictures, read back by another program."""

import io

import numpy as np
import pytest

from onesigma.pages.html.png import data_uri, png


@pytest.mark.parametrize("shape", [(3, 5), (4, 2, 3)], ids=["grey", "colour"])
def test_read_back(shape: tuple[int, ...]) -> None:
    image = pytest.importorskip("PIL.Image", reason="pillow comes with matplotlib")
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    with image.open(io.BytesIO(png(pixels))) as read:
        assert np.array_equal(np.asarray(read), pixels)


def test_part_of_a_page() -> None:
    assert data_uri(np.zeros((2, 2), np.uint8)).startswith("data:image/png;base64,iVBOR")

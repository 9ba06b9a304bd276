"""The official archives: where they are on the network, and where they lie once unpacked."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from onesigma.errors import DataError
from onesigma.lab.datasets.archive import everything, extract
from onesigma.lab.datasets.cache import cache_folder
from onesigma.lab.datasets.download import download


@dataclass(frozen=True)
class Official:
    """One archive, and the file or folder that tells where its content lies."""

    title: str
    url: str
    file: str
    folder: str  # to unpack to, in the cache
    marker: str  # below that folder or deeper; its parent is what a loader reads
    size: int | None = None
    sha256: str | None = None
    inner: str | None = None
    wanted: Callable[[str], bool] = everything


def _is_needed_of_esc(name: str) -> bool:
    return "/meta/" in name or "/audio/" in name or "LICENSE" in name


OFFICIAL = {
    "hhar": Official(
        "Heterogeneity Activity Recognition (UCI 344, CC BY 4.0)",
        "https://archive.ics.uci.edu/static/public/344/heterogeneity+activity+recognition.zip",
        "heterogeneity+activity+recognition.zip",
        folder="hhar",
        marker="Activity recognition exp/Phones_accelerometer.csv",
        inner="Activity recognition exp.zip",
        wanted=lambda name: name.startswith("Activity recognition exp"),
    ),
    "opportunity": Official(
        "OPPORTUNITY Activity Recognition (UCI 226, CC BY 4.0)",
        "https://archive.ics.uci.edu/static/public/226/opportunity+activity+recognition.zip",
        "opportunity+activity+recognition.zip",
        folder="opportunity",
        marker="OpportunityUCIDataset/dataset/S1-ADL1.dat",
        inner="OpportunityUCIDataset.zip",
    ),
    "speech": Official(
        "Speech Commands v0.02, test set (CC BY 4.0)",
        "http://download.tensorflow.org/data/speech_commands_test_set_v0.02.tar.gz",
        "speech_commands_test_set_v0.02.tar.gz",
        folder="speech_commands_test_set_v0.02",
        marker="speech_commands_test_set_v0.02/yes",
        size=112_563_277,
        sha256="cc2a00c1147c2254e9be3fa0f779d8c17421dc349b86366567a8edfa9acd51df",
    ),
    "esc": Official(
        "ESC-50 (CC BY-NC 3.0; the ESC-10 part CC BY 3.0)",
        "https://github.com/karolpiczak/ESC-50/archive/master.zip",
        "ESC-50-master.zip",
        folder="esc",
        marker="ESC-50-master/meta",
        wanted=_is_needed_of_esc,
    ),
}


def find(name: str, root: Path | None = None) -> Path | None:
    """The folder a loader reads, in `root` or the cache or up to two folders down, if any."""
    for base in (*([] if root is None else [root]), cache_folder()):
        # HHAR lies a folder deeper where an unpacker named one after the archive.
        for above in ("", "*/", "*/*/"):
            for found in sorted(base.glob(above + OFFICIAL[name].marker)):
                return found.parent
    return None


def fetch(name: str, root: Path | None = None, progress: bool = True) -> Path:
    """The folder a loader reads, downloaded and unpacked to the cache if need be.

    Args:
        name: a key of OFFICIAL.
        root: where else the folder, or the archive as downloaded by hand, may lie.
        progress: show a bar, if tqdm is installed.

    Raises:
        DataError: no network, a broken or unexpected archive, a full disk; nothing half-done is
            left behind.
    """
    found = find(name, root)
    if found is not None:
        return found
    archive, cache = OFFICIAL[name], cache_folder()
    by_hand = None if root is None else root / archive.file
    if by_hand is None or not by_hand.is_file():
        by_hand = cache / "archives" / archive.file
    path = download(
        archive.url, by_hand, size=archive.size, sha256=archive.sha256, progress=progress
    )
    folder = extract(path, cache / archive.folder, wanted=archive.wanted, inner=archive.inner)
    found = find(name)
    if found is None:
        shutil.rmtree(folder)
        raise DataError(
            f"{path} does not hold {archive.marker}: it is another archive than {archive.title}, "
            "or its layout has changed."
        )
    return found

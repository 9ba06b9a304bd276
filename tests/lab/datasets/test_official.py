import io
import tarfile
import zipfile

import pytest

from onesigma.errors import DataError
from onesigma.lab.datasets import official


@pytest.fixture(autouse=True)
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

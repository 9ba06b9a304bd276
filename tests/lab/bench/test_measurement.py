"""A whole benchmark on a small model: what it reports, leaves out and keeps."""

import json

import pytest
from lab.bench.small_model import exported

from onesigma.cli import main as cli
from onesigma.errors import PackageError
from onesigma.lab.bench import contenders, meters, programs
from onesigma.lab.bench.contenders import PLAIN, Contender, subject_of_files
from onesigma.lab.bench.measurement import Bench, Plan
from onesigma.lab.bench.meters import Meter
from onesigma.lab.bench.programs import Program
from onesigma.lab.bench.result import show_result
from onesigma.lab.bench.runtimes import Runtime

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.fixture
def files():
    return exported()


def plan(**changes) -> Plan:
    return Plan(**{"runtimes": ("onnxruntime",), "threads": (1,), "batches": (1,), "repeats": 5,
                   "processes": 0, "energy_seconds": 0.01} | changes)  # fmt: skip


@pytest.fixture
def two_files(files, tmp_path):
    return subject_of_files([files / "full.onnx", files / "few.onnx"], tmp_path)


def start(measured, wanted, **options) -> Bench:
    return Bench(measured.name, measured.contenders, measured.inputs, wanted, **options)


def test_every_thread_count_and_batch_has_its_rows(two_files):
    parts = []
    bench = start(two_files, plan(threads=(1, 2), batches=(1, 3)))
    result = bench.run(lambda result: parts.append(len(result.rows)))
    assert parts == [2, 4, 6, 8, 8]
    assert {(r.threads, r.batch) for r in result.rows} == {(1, 1), (1, 3), (2, 1), (2, 3)}
    assert all(r.timing.ratio == 1 for r in result.rows if r.contender == "full")
    row = result.row("few", "onnxruntime", threads=2, batch=3)
    assert row is not None
    assert row.timing.calls == 5
    figures = row.to_dict()
    assert figures["inputs_per_second"] == pytest.approx(3 / row.timing.p50)
    assert figures["minimum_ms"] <= figures["p50_ms"] <= figures["p99_ms"]
    assert result.row("few", "onnxruntime", batch=64) is None
    text = show_result(result)
    assert "threads 2, batch 3" in text
    assert "ONNX Runtime ms" in text
    json.dumps(result.to_dict(), allow_nan=False)


def test_what_is_not_installed_is_left_out_with_a_word(two_files, monkeypatch):
    def missing(self):
        return ["openvino"] if self.title == "OpenVINO" else []

    monkeypatch.setattr(Runtime, "missing", missing)
    result = start(two_files, plan(runtimes=("openvino", "onnxruntime"))).run()
    assert result.skipped == {"OpenVINO": "not installed (openvino)"}
    assert {row.runtime for row in result.rows} == {"onnxruntime"}
    assert "left out: OpenVINO: not installed (openvino)" in show_result(result)
    with pytest.raises(PackageError, match=r"can be used\. OpenVINO: not installed"):
        start(two_files, plan(runtimes=("openvino",))).run()


def test_what_fails_is_left_out_with_the_reason(two_files, files, tmp_path):
    def fail(path):
        raise RuntimeError("no such op\nand a long trace")

    two_files.contenders.append(Contender("broken", (Program(tmp_path / "b.onnx", None, fail),)))
    result = start(two_files, plan()).run()
    assert result.skipped == {"broken in ONNX Runtime": "no such op"}
    assert [row.contender for row in result.rows] == ["full", "few"]


def test_files_and_memory_are_held_against_the_first(two_files, files, monkeypatch):
    peaks = iter((10_000, 12_500))
    monkeypatch.setattr(meters, "peak_memory", lambda *_, **__: next(peaks))
    monkeypatch.setattr(meters, "can_measure_memory", lambda: True)
    first, second = start(two_files, plan(processes=1)).run().footprints
    assert (first.file_ratio, first.over_plain) == (1.0, 0)
    sizes = [(files / name).stat().st_size for name in ("full.onnx", "few.onnx")]
    assert second.file_ratio == sizes[1] / sizes[0]
    assert second.over_plain == 2_500


def test_energy_only_where_there_is_a_meter(two_files, monkeypatch):
    monkeypatch.setattr(meters, "find_meters", lambda: ([], "no meter"))
    result = start(two_files, plan()).run()
    assert (result.energy, result.notes) == ([], ["no meter"])
    monkeypatch.setattr(meters, "find_meters", lambda: ([Meter("rail", lambda: 4.0)], ""))
    result = start(two_files, plan()).run()
    assert [each["contender"] for each in result.energy] == ["full", "few"]
    assert all(each["watts"] == pytest.approx(4.0) for each in result.energy)
    assert "mJ per answer" in show_result(result)


def few(converted, examples, folder, **_):
    """In place of ``make_contenders``, which makes many."""
    plain = programs.plain(converted, examples, folder / "plain.onnx")
    ours = programs.one_pass(converted, examples, folder / "ours.onnx")
    sampled = programs.all_masks(converted, examples, 30, folder / "sampled.onnx")
    return [
        Contender(PLAIN, (plain,)),
        Contender("one pass, moments", (ours,)),
        Contender("MC-30, one batch", (sampled,), random=True),
    ]


def test_the_command(files, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(meters, "can_measure_memory", lambda: False)
    monkeypatch.setattr(contenders, "make_contenders", few)
    command = ["bench", str(files / "model.safetensors"), "--quick", "--json"]
    assert cli.main([*command, "--output", str(tmp_path / "out")]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert {row["runtime"] for row in figures["rows"]} == {"eager", "onnxruntime"}
    names = {row["contender"] for row in figures["rows"]}
    assert names == {PLAIN, "one pass, moments", "MC-30, one batch"}
    assert figures["skipped"] == {}
    assert json.loads((tmp_path / "out" / "bench.json").read_text()) == figures
    assert "files and memory" in (tmp_path / "out" / "bench.txt").read_text()
    command = ["bench", str(files / "full.onnx"), str(files / "few.onnx"), "--quick"]
    assert cli.main([*command, "--runtimes", "onnxruntime", "--batch", "2"]) == 0
    assert "threads 1, batch 2" in capsys.readouterr().out


def test_an_onnx_file_cannot_go_back_to_pytorch(files, capsys):
    assert cli.main(["bench", str(files / "full.onnx"), "--runtimes", "eager"]) == 1
    assert "runs in onnxruntime, openvino, not in eager" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--batch", "0"], ["--runtimes", "abacus"]])
def test_wrong_usage(arguments):
    with pytest.raises(SystemExit) as stop:
        cli.main(["bench", *arguments])
    assert stop.value.code == 2

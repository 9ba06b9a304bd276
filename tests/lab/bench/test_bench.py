"""A whole benchmark on a small model: what it reports, leaves out and keeps."""

import json

import numpy as np
import pytest
import torch
from lab.bench.small import SHAPE, small
from onesigma.lab.bench.bench import Bench, Plan
from onesigma.lab.bench.energy import Meter
from onesigma.lab.bench.report import show
from onesigma.lab.bench.subject import of_files, subject

import onesigma
from onesigma.cli import main as cli
from onesigma.errors import FileError, InputError, PackageError
from onesigma.lab.bench import bench as target
from onesigma.lab.bench import memory, profile, runtimes
from onesigma.lab.bench.contenders import Contender
from onesigma.lab.bench.programs import Program, stored

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The small model as a user has it: saved, and exported in two modes."""
    folder = tmp_path_factory.mktemp("models")
    converted = small()
    onesigma.save(converted, folder / "model.safetensors")
    onesigma.export(converted, folder / "full.onnx")
    onesigma.export(small(variance="lowrank"), folder / "lowrank.onnx")
    return folder


def plan(**changes) -> Plan:
    return Plan(**{"runtimes": ("onnxruntime",), "threads": (1,), "batches": (1,), "repeats": 5,
                   "processes": 0, "energy_seconds": 0.01} | changes)  # fmt: skip


@pytest.fixture
def two_files(files, tmp_path):
    return of_files([files / "full.onnx", files / "lowrank.onnx"], tmp_path)


def start(measured, wanted, **options) -> Bench:
    return Bench(measured.name, measured.contenders, measured.inputs, wanted, **options)


def test_every_thread_count_and_batch_has_its_rows(two_files):
    parts = []
    bench = start(two_files, plan(threads=(1, 2), batches=(1, 3)))
    result = bench.run(lambda result: parts.append(len(result.rows)))
    assert parts == [2, 4, 6, 8, 8]
    assert {(r.threads, r.batch) for r in result.rows} == {(1, 1), (1, 3), (2, 1), (2, 3)}
    assert all(r.timing.ratio == 1 for r in result.rows if r.contender == "full")
    row = result.row("lowrank", "onnxruntime", threads=2, batch=3)
    assert row is not None
    assert row.timing.calls == 5
    figures = row.to_dict()
    assert figures["inputs_per_second"] == pytest.approx(3 / row.timing.p50)
    assert figures["minimum_ms"] <= figures["p50_ms"] <= figures["p99_ms"]
    assert result.row("lowrank", "onnxruntime", batch=64) is None
    text = show(result)
    assert "threads 2, batch 3" in text
    assert "ONNX Runtime ms" in text
    json.dumps(result.to_dict(), allow_nan=False)


def test_what_is_not_installed_is_left_out_with_a_word(two_files, monkeypatch):
    absent = {"openvino": ["openvino"], "onnxruntime": []}
    monkeypatch.setattr(target, "missing", absent.get)
    result = start(two_files, plan(runtimes=("openvino", "onnxruntime"))).run()
    assert result.skipped == {"OpenVINO": "not installed (openvino)"}
    assert {row.runtime for row in result.rows} == {"onnxruntime"}
    assert "left out: OpenVINO: not installed (openvino)" in show(result)
    with pytest.raises(PackageError, match=r"can be used\. OpenVINO: not installed"):
        start(two_files, plan(runtimes=("openvino",))).run()


def test_what_fails_is_left_out_with_the_reason(two_files, files, tmp_path):
    def fail(path):
        raise RuntimeError("no such op\nand a long trace")

    two_files.contenders.append(Contender("broken", (Program(tmp_path / "b.onnx", None, fail),)))
    result = start(two_files, plan()).run()
    assert result.skipped == {"broken in ONNX Runtime": "no such op"}
    assert [row.contender for row in result.rows] == ["full", "lowrank"]


def test_files_and_memory_are_held_against_the_first(two_files, files, monkeypatch):
    peaks = iter((10_000, 12_500))
    monkeypatch.setattr(memory, "peak", lambda *_, **__: next(peaks))
    monkeypatch.setattr(memory, "can_measure", lambda: True)
    first, second = start(two_files, plan(processes=1)).run().footprints
    assert (first.file_ratio, first.over_plain) == (1.0, 0)
    sizes = [(files / name).stat().st_size for name in ("full.onnx", "lowrank.onnx")]
    assert second.file_ratio == sizes[1] / sizes[0]
    assert second.over_plain == 2_500


def test_energy_only_where_there_is_a_meter(two_files, monkeypatch):
    monkeypatch.setattr(target.energy, "find_meters", lambda: ([], "no meter"))
    result = start(two_files, plan()).run()
    assert (result.energy, result.notes) == ([], ["no meter"])
    monkeypatch.setattr(target.energy, "find_meters", lambda: ([Meter("rail", lambda: 4.0)], ""))
    result = start(two_files, plan()).run()
    assert [each["contender"] for each in result.energy] == ["full", "lowrank"]
    assert all(each["watts"] == pytest.approx(4.0) for each in result.energy)
    assert "mJ per answer" in show(result)


def test_memory_is_that_of_a_process_of_its_own(files):
    if not memory.can_measure():
        pytest.skip("no /proc on this system")
    inputs = (np.zeros((1, *SHAPE), np.float32),)
    found = memory.peak("onnxruntime", [files / "full.onnx"] * 2, inputs, processes=1)
    # ONNX Runtime itself takes some megabytes; PyTorch, which must not be there, some hundred.
    assert 1e6 < found < 1e8
    with pytest.raises(RuntimeError, match="absent"):
        memory.peak("onnxruntime", [files / "absent.onnx"], inputs, processes=1)


def test_a_profile_sums_up_nodes_by_op():
    def event(name, op, microseconds):
        return {"cat": "Node", "name": f"{name}_kernel_time", "dur": microseconds,
                "args": {"op_name": op}}  # fmt: skip

    events = [event("a", "Conv", 30), event("a", "Conv", 20), event("b", "Conv", 40)]
    events += [event("c", "Mul", 60), {"cat": "Session", "name": "run", "dur": 999}]
    found = profile.summed_up(events)
    assert [(each.op, each.nodes, each.microseconds) for each in found] == [
        ("Conv", 2, 60),
        ("Mul", 1, 60),
    ]
    assert [each.share for each in found] == [0.5, 0.5]


def test_a_profile_of_a_file(files):
    found = profile.profile(files / "full.onnx", (np.zeros((1, *SHAPE), np.float32),), runs=2)
    assert "Conv" in {each.op.removeprefix("Fused") for each in found}
    assert sum(each.share for each in found) == pytest.approx(1)


@pytest.mark.parametrize("names", [["model.safetensors", "full.onnx"], ["text.txt"]])
def test_other_files_are_refused(files, tmp_path, names):
    with pytest.raises(InputError, match=r"Pass one \.safetensors"):
        subject([files / name for name in names], tmp_path)


def test_onnx_files_must_be_readable_and_alike(files, tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    with pytest.raises(FileError, match="cannot be read"):
        of_files([tmp_path / "bad.onnx"], tmp_path)
    linear = torch.nn.Sequential(torch.nn.Dropout(0.4), torch.nn.Linear(5, 3)).eval()
    onesigma.export(onesigma.convert(linear, torch.randn(2, 5)), tmp_path / "other.onnx")
    with pytest.raises(InputError, match=r"other\.onnx takes other inputs"):
        of_files([files / "full.onnx", tmp_path / "other.onnx"], tmp_path)


def test_a_stored_file_stays_where_it_is(files, tmp_path):
    program = stored(files / "full.onnx", tmp_path)
    assert program.path == files / "full.onnx"
    assert (program.name, program.folder) == ("full", tmp_path)


def test_runtimes_are_listed_with_what_they_need():
    for name in runtimes.RUNTIMES:
        module = runtimes.runtime(name)
        assert module.NAME
        assert module.PACKAGES
        assert callable(module.translate)
        assert callable(module.start)
    assert runtimes.missing("onnxruntime") == []
    assert runtimes.title("onnxruntime").startswith("ONNX Runtime 1.")


def test_the_command(files, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(memory, "can_measure", lambda: False)
    command = ["bench", str(files / "model.safetensors"), "--quick", "--json"]
    assert cli.main([*command, "--output", str(tmp_path / "out")]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert {row["runtime"] for row in figures["rows"]} == {"eager", "onnxruntime"}
    names = {row["contender"] for row in figures["rows"]}
    assert {"plain network", "one pass, full", "MC-30, one batch", "MC-30, loop"} <= names
    assert figures["skipped"] == {}
    assert json.loads((tmp_path / "out" / "bench.json").read_text()) == figures
    assert "files and memory" in (tmp_path / "out" / "bench.txt").read_text()
    command = ["bench", str(files / "full.onnx"), str(files / "lowrank.onnx"), "--quick"]
    assert cli.main([*command, "--batch", "2"]) == 0
    assert "threads 1, batch 2" in capsys.readouterr().out


def test_an_onnx_file_cannot_go_back_to_pytorch(files, capsys):
    assert cli.main(["bench", str(files / "full.onnx"), "--runtimes", "eager"]) == 1
    assert "runs in onnxruntime, openvino, not in eager" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--batch", "0"], ["--runtimes", "abacus"]])
def test_wrong_usage(arguments):
    with pytest.raises(SystemExit) as stop:
        cli.main(["bench", *arguments])
    assert stop.value.code == 2

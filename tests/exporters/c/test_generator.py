"""What is promised of the two files, whatever the model: names, memory, re-entrancy, options."""

import json
import re
import subprocess

import pytest
import torch
from torch import nn

import onesigma
from onesigma import ExportError, InputError

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from exporters.c.c_models import (  # noqa: E402
    CLASS_NAMES,
    Model,
    as_onnx,
    assert_agrees,
    converted,
    exported,
    needs_gcc,
)

from onesigma.exporters.c import generate  # noqa: E402
from onesigma.lab import c_verify as verify  # noqa: E402


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    return generate(exported(), tmp_path_factory.mktemp("c") / "new", name="gait")


def program(generated, body: str, tmp_path, *flags: str) -> str:
    """What a main function with this body prints."""
    main = tmp_path / "main.c"
    name = generated.source.stem
    head = f'#include <math.h>\n#include <stdio.h>\n#include <string.h>\n#include "{name}.h"\n'
    main.write_text(f"{head}int main(void)\n{{\n{body}\nreturn 0;\n}}\n")
    binary = tmp_path / "program"
    sources = [str(main), str(generated.source), f"-I{generated.source.parent}"]
    command = ["gcc", *verify.WARNINGS, *flags, *sources, "-o", str(binary), "-lm"]
    subprocess.run(command, check=True, capture_output=True)
    done = subprocess.run([str(binary)], check=True, capture_output=True, text=True)
    return done.stdout


def test_two_files_with_the_promised_names(generated):
    header, source = generated.header.read_text(), generated.source.read_text()
    assert sorted(p.name for p in generated.source.parent.iterdir()) == ["gait.c", "gait.h"]
    assert "int gait_predict(const float *input, struct gait_prediction *out);" in header
    assert "#define GAIT_INPUT_SIZE 24 /* 2 x 12 */" in header
    assert "#define GAIT_CLASSES 3" in header
    assert f"#define GAIT_ARENA_SIZE {generated.arena // 4} " in header
    assert f"{generated.arena:,}" in header
    for word in ("malloc", "stdio", "calloc", "goto"):
        assert word not in source


def test_it_prints_what_it_takes(generated):
    lines = str(generated).splitlines()
    assert lines[0].endswith("gait.c, gait.h")
    found = {line.split("  ")[0]: int(line.split()[-1].replace(",", "")) for line in lines[3:]}
    weights = 2 * 6 * 3 + 6 * 5 * 3 + 60 * 3
    assert found["weights and tables"] == generated.flash
    assert 4 * weights < generated.flash < 4 * weights + 4 * 64 * 3 + 200  # and the draws
    assert found["arena"] == generated.arena
    assert found["prediction"] == generated.prediction == 4 * (3 + 3 + 3 + 3 + 1) + 4


@needs_gcc
def test_sizes_are_those_of_the_compiler(generated, tmp_path):
    body = 'printf("%zu %d", sizeof(struct gait_prediction), GAIT_ARENA_SIZE);'
    assert program(generated, body, tmp_path) == f"{generated.prediction} {generated.arena // 4}"


@needs_gcc
def test_label_act_and_names(generated, tmp_path):
    x = torch.randn(1, 2, 12, generator=torch.Generator().manual_seed(3))
    numbers = ", ".join(f"{float(v):.9g}f" for v in x.flatten())
    body = f"""static const float x[GAIT_INPUT_SIZE] = {{{numbers}}};
    static struct gait_prediction out;
    if (gait_predict(x, &out)) return 1;
    printf("%d %d %s|%.5f", out.label, out.act, gait_class_names[2], out.entropy);"""
    with torch.no_grad():
        answer = converted()(x)
    said, entropy = program(generated, body, tmp_path).split("|")
    assert said == f"{int(answer.label)} {int(answer.act)} {CLASS_NAMES[2]}"
    assert float(entropy) == pytest.approx(float(answer.entropy), abs=1e-4)


@needs_gcc
def test_it_is_re_entrant_and_leaves_nothing_in_the_arena(generated, tmp_path):
    """A dirty arena, another one, and none at all: the same answer, and no globals are written."""
    body = """float arena[GAIT_ARENA_SIZE], x[GAIT_INPUT_SIZE];
    struct gait_prediction a, b, c;
    memset(&a, 0, sizeof a); memset(&b, 1, sizeof b); memset(&c, 2, sizeof c);
    for (int i = 0; i < GAIT_INPUT_SIZE; ++i) x[i] = (float)(i % 5) - 2.0f;
    for (int i = 0; i < GAIT_ARENA_SIZE; ++i) arena[i] = NAN;
    if (gait_predict_with(arena, x, &a) || gait_predict_with(arena, x, &b)) return 1;
    if (gait_predict(x, &c)) return 1;
    printf("%d %d ", memcmp(a.probs, b.probs, sizeof a.probs), memcmp(a.var, c.var, sizeof a.var));
    printf("%d %d", gait_predict(NULL, &a), gait_predict_with(NULL, x, &a));"""
    assert program(generated, body, tmp_path, *verify.SANITIZERS) == "0 0 -1 -1"
    object_file = tmp_path / "model.o"
    options = ["-c", "-fno-pie", "-DGAIT_NO_ARENA", "-o", str(object_file)]
    subprocess.run(["gcc", *options, str(generated.source)], check=True)
    symbols = subprocess.run(["nm", object_file], check=True, capture_output=True, text=True).stdout
    assert not re.findall(r" [BbDdC] \w+", symbols)
    calls = set(re.findall(r" U (\w+)", symbols)) - {"__stack_chk_fail"}
    # The last is gcc's own: which instructions the processor has.
    assert calls <= {"logf", "sqrtf", "memcpy", "memset", "__cpu_model"}


@needs_gcc
@pytest.mark.parametrize("flags", [("-O0",), ("-O2", "-ffast-math")], ids=" ".join)
def test_an_input_that_is_not_finite_is_an_error(generated, tmp_path, flags):
    """Whatever stands at whatever place; the largest number is an input like any other."""
    body = """static float x[GAIT_INPUT_SIZE];
    static struct gait_prediction a;
    const unsigned bad[] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffc00001u, 0x7f7fffffu};
    for (int kind = 0; kind < 5; ++kind) {
        int refused = 0;
        for (int i = 0; i < GAIT_INPUT_SIZE; ++i) {
            memset(x, 0, sizeof x);
            memcpy(x + i, bad + kind, sizeof *x);
            a.label = -7;
            const int code = gait_predict(x, &a);
            refused += code == GAIT_NOT_FINITE && a.label == -7;
            if (code && code != GAIT_NOT_FINITE) return 1;
        }
        printf("%d ", refused);
    }
    printf("%d", gait_predict(NULL, &a) == GAIT_NULL_POINTER);"""
    assert program(generated, body, tmp_path, *flags) == "24 24 24 24 0 1"


@needs_gcc
def test_every_input_is_checked(tmp_path):
    m = Model(a=(1, 3), b=(1, 3))
    m.op("Add", "a", "b")
    body = """float a[3] = {0}, b[3] = {0, 0, INFINITY};
    struct model_prediction out;
    printf("%d %d", model_predict(a, b, &out), model_predict(b, a, &out));"""
    assert program(generate(m.proto(), tmp_path), body, tmp_path) == "-2 -2"


def test_options_are_checked(tmp_path):
    (tmp_path / "file").write_text("")
    model = exported()
    with pytest.raises(InputError, match="name='Int main'"):
        generate(model, tmp_path / "x", name="Int main")
    with pytest.raises(InputError, match="takes 1 inputs, not 2"):
        generate(model, tmp_path / "x", input_shapes=[(1, 2, 12)] * 2)
    with pytest.raises(InputError, match="is a file"):
        generate(model, tmp_path / "file")
    with pytest.raises(InputError, match="create it first"):
        generate(model, tmp_path / "x" / "y")
    with pytest.raises(InputError, match=r"opset: C files \(x\) have no such option"):
        onesigma.export(converted(), tmp_path / "x", opset=18)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("shape", [(1, 2, 12), (2, 12)])
def test_an_input_shape_may_leave_out_the_batch(shape, generated, tmp_path):
    again = generate(exported(), tmp_path, name="gait", input_shapes=[shape])
    assert again.source.read_text() == generated.source.read_text()


@pytest.mark.parametrize("shape", [(1, 2, 13), (2, 2, 12), (12,), (1, 1, 2, 12), (1, 2, 0)])
def test_an_input_shape_must_fit(shape, tmp_path):
    with pytest.raises(InputError, match="input_shape"):
        generate(exported(), tmp_path / "x", input_shapes=[shape])
    assert not (tmp_path / "x").exists()


def test_by_way_of_export(tmp_path):
    options = {"input_shape": (2, 12), "class_names": CLASS_NAMES, "name": "gait"}
    written = onesigma.export(converted(), tmp_path / "new", **options)
    assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["gait.c", "gait.h"]
    assert "erf" not in written.source.read_text()


@needs_gcc
def test_names_that_c_reserves(tmp_path):
    m = Model(double=(1, 4), x0=(1, 4), arena=(1, 4))
    y = m.op("Add", "double", m.op("Mul", "x0", "arena", output=False), output=False)
    m.nodes[-1].output[0] = "register"
    m.outputs.append("register")
    assert y
    assert_agrees(m, tmp_path)


@needs_gcc
@pytest.mark.parametrize("options", [{"covariance": True}, {"input_std": 0.3}], ids=str)
def test_options_of_convert(options, tmp_path):
    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv2d(3, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.4)),
        # Windows of different sizes, on a map of 3 × 4.
        *(nn.Conv2d(6, 9, 1), nn.AdaptiveAvgPool2d((2, 3)), nn.Flatten(), nn.Linear(54, 4)),
    )
    x = torch.randn(3, 3, 8, 9)
    model = as_onnx(onesigma.convert(network.eval(), x, **options))
    samples = [{"input": x[i : i + 1].numpy()} for i in range(3)]
    ran = verify.run(generate(model, tmp_path), samples, flags=["-O0"])
    assert verify.largest_mismatch(model, ran, samples) < 1e-4


def test_damaged_metadata(tmp_path):
    model = onnx.ModelProto()
    model.CopyFrom(exported())
    model.metadata_props[0].value = json.dumps([])
    with pytest.raises(ExportError, match="metadata are damaged"):
        generate(model, tmp_path / "x")
    assert not (tmp_path / "x").exists()

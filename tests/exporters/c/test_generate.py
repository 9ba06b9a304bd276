"""What is promised of the two files, whatever the model: names, memory, re-entrancy, options."""

import json
import re
import subprocess
from functools import cache

import numpy as np
import pytest
import torch
from scipy.special import erf
from torch import nn

import onesigma
from onesigma import ExportError, InputError
from onesigma.decide.threshold import AbstainRule

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from exporters.c.c_models import NEEDS_GCC, Model, assert_agrees, random_inputs  # noqa: E402

from onesigma.exporters.c import generate, verify  # noqa: E402
from onesigma.exporters.c.fuse import Loop, fuse  # noqa: E402
from onesigma.exporters.c.graph import read  # noqa: E402
from onesigma.exporters.c.int8 import rounded  # noqa: E402
from onesigma.exporters.c.plan import plan  # noqa: E402
from onesigma.exporters.c.weights import share_squares  # noqa: E402

needs_gcc = pytest.mark.skipif(NEEDS_GCC is not None, reason=f"{NEEDS_GCC}")
RULE = AbstainRule("entropy", 0.9, 0.05, None, 100, 0.8, 0.03)
NAMES = ["walk", "run", 'sit "still"']


@cache
def converted(variance: str = "full") -> onesigma.Converted:
    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv1d(2, 6, 3, padding=1), nn.ReLU(), nn.Dropout(0.3)),
        *(nn.Conv1d(6, 5, 3, padding=1), nn.ReLU(), nn.Dropout(0.3)),
        *(nn.Flatten(), nn.Linear(60, 3)),
    )
    x = torch.randn(4, 2, 12)
    return onesigma.convert(network.eval(), x, variance=variance).with_abstain(RULE)


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("c") / "new"
    return onesigma.export(
        converted(), folder, target="c", name="gait", input_shape=(1, 2, 12), class_names=NAMES
    )


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
    assert said == f"{int(answer.label)} {int(answer.act)} {NAMES[2]}"
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
    assert calls <= {"logf", "sqrtf", "memcpy", "memset"}


def test_options_are_checked(full, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="name='Int main'"):
        generate(full, tmp_path / "x", name="Int main")
    with pytest.raises(InputError, match="input_shape"):
        generate(full, tmp_path / "x", input_shapes=[(1, 2, 13)])
    with pytest.raises(InputError, match="takes 1 inputs, not 2"):
        generate(full, tmp_path / "x", input_shapes=[(1, 2, 12)] * 2)
    with pytest.raises(InputError, match="is a file"):
        generate(full, tmp_path / "file")
    with pytest.raises(InputError, match="create it first"):
        generate(full, tmp_path / "x" / "y")
    with pytest.raises(InputError, match="no such file"):
        generate(tmp_path / "absent.onnx", tmp_path / "x")
    with pytest.raises(InputError, match="choose 'onnx' or 'c'"):
        onesigma.export(converted(), tmp_path / "x", target="cobol")
    with pytest.raises(TypeError, match="opset"):
        onesigma.export(converted(), tmp_path / "x", target="c", opset=18)
    assert not (tmp_path / "x").exists()


@needs_gcc
def test_names_that_c_reserves(tmp_path):
    m = Model(double=(1, 4), x0=(1, 4), arena=(1, 4))
    y = m.op("Add", "double", m.op("Mul", "x0", "arena", output=False), output=False)
    m.nodes[-1].output[0] = "register"
    m.outputs.append("register")
    assert y
    assert_agrees(m, tmp_path)


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    path = tmp_path_factory.mktemp("full") / "m.onnx"
    return onnx.load(onesigma.export(converted(), path).path)


@pytest.fixture(scope="module")
def lowrank(tmp_path_factory):
    path = tmp_path_factory.mktemp("lowrank") / "m.onnx"
    return onnx.load(onesigma.export(converted("lowrank"), path).path)


def test_one_loop_per_activation_and_one_step_per_layer(full):
    graph = read(full)
    share_squares(graph.nodes)
    steps = fuse(graph)
    layers = [step for step in steps if not isinstance(step, Loop)]
    assert [len(step.reads) for step in layers] == [1, 2, 2]  # mean alone, then mean and variance
    between = [steps.index(layer) for layer in layers]
    assert between == [0, 2, 4]
    assert all(isinstance(steps[i], Loop) for i in (1, 3))


@pytest.mark.parametrize("variance", ["full", "lowrank"])
def test_squared_weights_are_not_stored(variance, request, tmp_path):
    model = request.getfixturevalue(variance)
    weights = sum(np.prod(t.dims) for t in model.graph.initializer if t.name.endswith("weight"))
    draws = 64 * 3
    flash = generate(model, tmp_path).flash
    assert flash < 4 * (weights + draws + 100)


def test_no_two_living_values_share_memory(full):
    """By brute force: replay the steps, and look at who owns each float."""
    graph = read(full)
    share_squares(graph.nodes)
    steps = fuse(graph)
    places = plan(graph, steps, lambda step: 7)
    last = {}
    for index, step in enumerate(steps):
        for value in step.reads:
            last[value.storage] = index
    owner = np.full(places.size, -1)
    names = {storage: i for i, storage in enumerate(places.places)}
    for index, step in enumerate(steps):
        for value in step.reads:
            if value.storage in names:
                start = places.places[value.storage]
                assert (owner[start : start + value.storage.size] == names[value.storage]).all()
        scratch = owner[places.scratch[index] :][:7]
        assert not any(last.get(s, -1) >= index for s in names if names[s] in scratch)
        for value in step.writes:
            if value.storage in names:
                start = places.places[value.storage]
                owner[start : start + value.storage.size] = names[value.storage]


@needs_gcc
@pytest.mark.parametrize("variance", ["full", "lowrank"])
def test_int8_weights(variance, request, tmp_path):
    """The C is that of the rounded model, and the cost that was reported is what it is."""
    model = request.getfixturevalue(variance)
    x = torch.randn(16, 2, 12, generator=torch.Generator().manual_seed(1)).numpy()
    small = generate(model, tmp_path, int8=True, examples=[x])
    assert small.flash < 0.65 * generate(model, tmp_path / "float").flash  # the draws stay
    reference, cost = rounded(model, [x], [(1, 2, 12)])
    assert cost == small.int8
    assert 1e-5 < cost.change < 0.02
    assert cost.labels == 0
    assert "int8 weights, on 16 inputs: probs change by at most" in str(small)
    onnx.save(reference, tmp_path / "rounded.onnx")
    samples = [{"input": x[i : i + 1]} for i in range(3)]
    ran = verify.run(small, samples, flags=verify.SANITIZERS)
    assert verify.largest_mismatch(tmp_path / "rounded.onnx", ran, samples) < 1e-4


@needs_gcc
def test_int8_of_other_layers(tmp_path):
    m = Model(x=(1, 4, 9), y=(1, 6, 8))
    random = np.random.default_rng(0)
    m.op("ConvTranspose", "x", m.constant(random.standard_normal((4, 6, 3))), strides=[2])
    m.op("Gemm", m.op("Flatten", "x", output=False), m.constant(random.standard_normal((36, 5))))
    weight = m.constant(random.standard_normal((7, 8)))
    m.op("MatMul", "y", m.op("Transpose", weight, perm=[1, 0], output=False))
    proto, samples = m.proto(), random_inputs(m)
    reference, _ = rounded(proto, None, [(1, 4, 9), (1, 6, 8)])
    ran = verify.run(generate(proto, tmp_path, int8=True), samples)
    onnx.save(reference, tmp_path / "m.onnx")
    assert verify.largest_mismatch(tmp_path / "m.onnx", ran, samples) < 1e-5


@needs_gcc
def test_exp_and_erf(tmp_path):
    """Ours, against double precision over their whole range."""
    m = Model(x=(1, 4001), y=(1, 4001))
    m.op("Exp", "x")
    m.op("Erf", "y")
    x = np.linspace(-110, 95, 4001, dtype=np.float32)[None]
    y = np.linspace(-5, 5, 4001, dtype=np.float32)[None]
    y[0, :4] = [np.inf, -np.inf, 1e30, 0]
    (found,) = verify.run(generate(m.proto(), tmp_path), [{"x": x, "y": y}]).outputs
    exp, error = found["exp_0_0"], found["erf_1_0"]
    with np.errstate(over="ignore"):
        wanted = np.exp(x[0].astype(np.float64))
    normal = (wanted > 2e-38) & (wanted < 2.3e38)
    assert np.abs(exp[normal] / wanted[normal] - 1).max() < 2.5e-7
    assert (exp[wanted > 3.5e38] == np.inf).all()
    assert (exp[wanted < 1e-38] == 0).all()
    assert np.abs(error - erf(y[0].astype(np.float64))).max() < 6e-7
    assert [*error[:4]] == [1, -1, 1, 0]


def test_erf_free(tmp_path):
    generated = onesigma.export(converted(), tmp_path, target="c", erf=False)
    assert "erf" not in generated.source.read_text()


@needs_gcc
def test_a_failure_to_compile_says_what_gcc_says(generated, tmp_path):
    with pytest.raises(ExportError, match="gcc failed"):
        verify.run(generated, [{"input": np.zeros(24)}], flags=["-DGAIT_STEP=no such thing"])


@needs_gcc
@pytest.mark.parametrize(
    "options",
    [
        {"variance": "lowrank"},
        {"variance": "lowrank", "mean": "frozen"},
        {"covariance": True},
        {"input_std": 0.3},
    ],
    ids=str,
)
def test_modes_of_convert(options, tmp_path):
    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.Dropout(0.4)),
        *(nn.Conv2d(6, 9, 3, stride=2), nn.BatchNorm2d(9), nn.ReLU(), nn.Dropout(0.4)),
        *(nn.Conv2d(9, 9, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(9, 4)),
    )
    x = torch.randn(3, 3, 8, 9)
    model = onesigma.convert(network.eval(), x, **options)
    path = onesigma.export(model, tmp_path / "m.onnx").path
    samples = [{"input": x[i : i + 1].numpy()} for i in range(3)]
    ran = verify.run(generate(path, tmp_path), samples, flags=["-O0"])
    assert verify.largest_mismatch(path, ran, samples) < 1e-4


def test_damaged_metadata(full, tmp_path):
    model = onnx.ModelProto()
    model.CopyFrom(full)
    model.metadata_props[0].value = json.dumps([])
    with pytest.raises(ExportError, match="metadata are damaged"):
        generate(model, tmp_path / "x")
    assert not (tmp_path / "x").exists()


def test_a_damaged_file(tmp_path):
    (tmp_path / "junk.onnx").write_bytes(b"junk")
    with pytest.raises(InputError, match=r"junk\.onnx cannot be read as ONNX"):
        generate(tmp_path / "junk.onnx", tmp_path / "c")
    assert not (tmp_path / "c").exists()

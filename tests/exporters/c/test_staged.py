"""Exits in C: the answers of ONNX Runtime, and the same after power cuts at any instant."""

import subprocess

import exit_models
import numpy as np
import pytest

import onesigma
from onesigma import runtime

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from exporters.c.c_models import needs_gcc

from onesigma.lab import c_verify as verify

pytestmark = pytest.mark.xdist_group("exits")  # a worker makes the models once
COUNT = 40
PRINT = """\
    printf("%d %d", answer.exit, answer.label);
    for (int c = 0; c < 3; ++c)
        printf(" %a", (double)answer.probs[c]);
    printf(" %a %a %d\\n", (double)answer.entropy, (double)answer.novelty, steps);
"""
STEADY = """\
    static struct model_state state;
    struct model_prediction answer;
    int steps = 1;
    if (model_begin(&state, input) != MODEL_GOES_ON)
        return 1;
    while (model_continue(&state, &answer) == MODEL_GOES_ON)
        ++steps;
    if (model_continue(&state, &answer) != MODEL_ANSWERED)
        return 2;
"""
# A cut leaves the first bytes of what a segment writes, and all else as it was: the slot that is
# written starts with its number, which is 0 until all is written.
CUT = """\
    static struct model_state state, before, torn;
    struct model_prediction answer;
    int steps = 0, found = MODEL_GOES_ON;
    if (model_begin(&state, input) != MODEL_GOES_ON)
        return 1;
    while (found == MODEL_GOES_ON) {
        before = state;
        model_continue(&state, &answer);
        const int to = memcmp(&state.slots[0], &before.slots[0], sizeof state.slots[0]) == 0;
        for (int i = 0; i < 5; ++i) {
            torn = before;
            torn.slots[to].turn = 0;
            memcpy(torn.slots[to].values, state.slots[to].values,
                   (size_t)i * sizeof state.slots[to].values / 4);
            if (i == 4) {
                torn.slots[to].place = state.slots[to].place;
                torn.slots[to].check = state.slots[to].check;
            }
            struct model_state again = torn;
            found = model_continue(&again, &answer);
            if (memcmp(&again, &state, sizeof state) != 0)
                return 3;
        }
        ++steps;
    }
"""
FORGED = """\
    static struct model_state state;
    struct model_prediction answer;
    if (model_continue(&state, &answer) != MODEL_NO_STATE)
        return 1;
    if (model_begin(&state, input) != MODEL_GOES_ON)
        return 2;
    state.slots[0].values[5] += 1.0f;
    if (model_continue(&state, &answer) != MODEL_NO_STATE)
        return 3;
    if (model_begin(NULL, input) != MODEL_NULL_POINTER)
        return 4;
    if (model_continue(&state, NULL) != MODEL_NULL_POINTER)
        return 5;
    static float broken[MODEL_INPUT_SIZE];
    broken[7] = NAN;
    if (model_begin(&state, broken) != MODEL_GOES_ON)
        return 6;
    return model_continue(&state, &answer) == MODEL_NOT_FINITE ? 0 : 7;
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("c")
    model = exit_models.model(True)  # whose state has energies, too
    onesigma.export(model, folder / "c", class_names=["slow", "medium", "fast"])
    onesigma.export(model, folder / "m.onnx")
    for source in (folder / "c").glob("*.c"):
        compiled(folder, source, "-c", "-o", str(source.with_suffix(".o")))
    x = exit_models.waves(COUNT)[0].numpy()
    x[-1] *= 20
    return folder, x


def compiled(folder, *words) -> None:
    flags = ["-O2", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    command = ["gcc", *verify.WARNINGS, *flags, f"-I{folder / 'c'}", *map(str, words)]
    subprocess.run(command, check=True, capture_output=True)


def run(folder, body: str, x) -> list[list[str]]:
    numbers = [", ".join(float(v).hex() + "f" for v in row.ravel()) for row in x]
    rows = ",\n".join(f"{{{each}}}" for each in numbers)
    main = (
        '#include <math.h>\n#include <stdio.h>\n#include <string.h>\n#include "model.h"\n'
        f"static const float inputs[][MODEL_INPUT_SIZE] = {{{rows}}};\n"
        f"static int run(const float *input)\n{{\n{body}\nreturn 0;\n}}\n"
        f"int main(void)\n{{\nfor (int i = 0; i < {len(x)}; ++i) {{\n"
        "    const int error = run(inputs[i]);\n    if (error)\n        return error;\n}\n"
        "return 0;\n}\n"
    )
    (folder / "main.c").write_text(main)
    made = (folder / "c").glob("*.o")
    compiled(folder, folder / "main.c", *made, "-o", folder / "run", "-lm")
    done = subprocess.run([str(folder / "run")], capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return [line.split() for line in done.stdout.splitlines()]


@needs_gcc
def test_c_leaves_where_onnx_does(written):
    folder, x = written
    wanted = runtime.load(folder / "m.onnx")(x)
    found = run(folder, STEADY + PRINT, x)
    assert [int(row[0]) for row in found] == wanted.exit.tolist()
    assert len({*wanted.exit.tolist()}) > 1
    assert [int(row[-1]) for row in found] == (wanted.exit + 1).tolist()
    assert [int(row[1]) for row in found] == wanted.label.tolist()
    numbers = np.array([[float.fromhex(v) for v in row[2:7]] for row in found])
    expected = np.column_stack([wanted.probs, wanted.entropy, wanted.novelty])
    np.testing.assert_allclose(numbers, expected, rtol=1e-3, atol=1e-4)


@needs_gcc
def test_after_power_cuts_the_answer_is_the_same_bit_for_bit(written):
    folder, x = written
    assert run(folder, CUT + PRINT, x[-12:]) == run(folder, STEADY + PRINT, x[-12:])


@needs_gcc
def test_what_is_no_state_is_refused(written):
    folder, x = written
    assert run(folder, FORGED, x[:1]) == []


def test_options_that_exits_do_not_have(tmp_path):
    model = exit_models.model(False)
    with pytest.raises(onesigma.InputError, match="int8"):
        onesigma.export(model, tmp_path / "c", int8=True)

"""Steps and memory of a converted network."""

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from exporters.c.c_models import exported

from onesigma.exporters.c.onnx_reader import read
from onesigma.exporters.c.plan import Loop, fuse, plan_memory
from onesigma.exporters.c.weights import share_squares


@pytest.fixture(scope="module")
def graph():
    graph = read(exported())
    share_squares(graph.nodes)
    return graph


def test_one_loop_per_activation_and_one_step_per_layer(graph):
    steps = fuse(graph)
    layers = [step for step in steps if not isinstance(step, Loop)]
    assert [len(step.reads) for step in layers] == [1, 2, 2]  # mean alone, then mean and variance
    between = [steps.index(layer) for layer in layers]
    assert between == [0, 2, 4]
    assert all(isinstance(steps[i], Loop) for i in (1, 3))


def test_no_two_living_values_share_memory(graph):
    """By brute force: replay the steps, and look at who owns each float."""
    steps = fuse(graph)
    memory = plan_memory(graph, steps, lambda step: 7)
    last = {}
    for index, step in enumerate(steps):
        for value in step.reads:
            last[value.storage] = index
    owner = np.full(memory.size, -1)
    names = {storage: i for i, storage in enumerate(memory.places)}
    for index, step in enumerate(steps):
        for value in step.reads:
            if value.storage in names:
                start = memory.places[value.storage]
                assert (owner[start : start + value.storage.size] == names[value.storage]).all()
        scratch = owner[memory.scratch[index] :][:7]
        assert not any(last.get(s, -1) >= index for s in names if names[s] in scratch)
        for value in step.writes:
            if value.storage in names:
                start = memory.places[value.storage]
                owner[start : start + value.storage.size] = names[value.storage]

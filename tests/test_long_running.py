"""One model in a service: many threads, many calls, the same answers and the same memory."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import onesigma

pytestmark = pytest.mark.long

THREADS = 8
STATUS = Path("/proc/self/statm")
PAGE = 4096


@pytest.fixture(scope="module")
def converted() -> onesigma.Converted:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 4))
    return onesigma.convert(model, rows(2), draws=8)


@pytest.fixture(scope="module")
def eager(converted) -> Callable[[Tensor], Any]:
    return torch.no_grad()(converted)


@pytest.fixture(scope="module")
def exported(converted, tmp_path_factory) -> Callable[[Tensor], Any]:
    pytest.importorskip("onnxruntime")
    path = tmp_path_factory.mktemp("exported") / "model.onnx"
    onesigma.export(converted, path)
    model = onesigma.runtime.load(path, threads=1)
    return lambda x: model(x.numpy())


@pytest.fixture(params=["eager", "exported"])
def predict(request) -> Callable[[Tensor], Any]:
    return request.getfixturevalue(request.param)


def rows(count: int) -> Tensor:
    return torch.randn(count, 64, generator=torch.Generator().manual_seed(1))


def values(prediction: Any) -> list[bytes]:
    fields = ("mean", "var", "probs", "entropy", "aleatoric", "epistemic")
    return [np.asarray(getattr(prediction, name)).tobytes() for name in fields]


def test_many_threads_get_the_answers_that_one_gets(predict):
    batches = rows(6 * THREADS).split(6)
    alone = [values(predict(batch)) for batch in batches]
    start = Barrier(THREADS)

    def worker(number: int) -> bool:
        torch.set_num_threads(
            1
        )  # PyTorch's count is the calling thread's; another rounds otherwise
        start.wait()
        order = [(number + step) % THREADS for step in range(10 * THREADS)]
        return all(values(predict(batches[i])) == alone[i] for i in order)

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(worker, range(THREADS))) == [True] * THREADS


def test_python_objects_do_not_pile_up(predict):
    x, calls = rows(1), 1000
    tracemalloc.start()
    try:
        for _ in range(100):  # under its eyes, for it counts only what was made since
            predict(x)
        grown = []
        for _ in range(3):  # what piles up does so every time; other threads of the tests do not
            before = settled()
            for _ in range(calls):
                predict(x)
            grown.append(settled() - before)
    finally:
        tracemalloc.stop()
    assert min(grown) < 16 * calls  # the smallest object takes 16 bytes


def settled() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.mark.skipif(not STATUS.exists(), reason="needs /proc to see the memory of a process")
def test_memory_stays_what_it_is(predict):
    """Tensors live outside of Python: to keep each call's input alone would take 100 MB here."""
    x = rows(1000)  # 256 kB
    for _ in range(30):
        predict(x)
    before = resident()
    for _ in range(400):
        predict(x.clone())
    assert resident() - before < 40 << 20


def resident() -> int:
    gc.collect()
    return int(STATUS.read_text().split()[1]) * PAGE

import importlib.util

import pytest
import torch

from onesigma.errors import InputError
from onesigma.lab.demo import checkpoint

# Looked up, not imported: importing seglearn would run its code, and its imports are its own.
needs_demo = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("seglearn", "tqdm")),
    reason="the demo extra is not installed",
)


@needs_demo
def test_training_learns_repeats_itself_and_leaves_the_random_state(tmp_path, capsys):
    from onesigma.lab.demo.train import train

    path = tmp_path / "a.safetensors"
    state = torch.get_rng_state()
    first = train(seed=3, epochs=2, progress=False, path=path)
    second = train(seed=3, epochs=2, progress=False)
    assert torch.equal(torch.get_rng_state(), state)
    # Two epochs are enough for twice the accuracy of chance.
    assert first.record.accuracy["train"] > 2 / 7
    assert first.record.best_epoch in (1, 2)
    weights = [c.network.state_dict() for c in (first, second, checkpoint.load(path))]
    for name, value in weights[0].items():
        assert torch.equal(value, weights[1][name])
        assert torch.equal(value, weights[2][name])
    assert capsys.readouterr().err == ""


@needs_demo
def test_no_epochs_are_refused():
    from onesigma.lab.demo.train import train

    with pytest.raises(InputError, match="epochs"):
        train(epochs=0, progress=False)

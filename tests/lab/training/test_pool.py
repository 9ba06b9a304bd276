"""The pool: trains what is missing, reuses what is there, draws with little overlap."""

import dataclasses
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest
import torch
from lab.training.trainings import EXAMPLES, SETTINGS, VALIDATION, build

from onesigma.errors import FileError, InputError
from onesigma.lab.training import pool
from onesigma.lab.training.pool import Pool, choose_members, train_pool


def make(folder: Path, members: int = 3, settings=SETTINGS, processes: int = 1) -> Pool:
    return train_pool(
        *(build, EXAMPLES, VALIDATION, settings, folder),
        members=members,
        processes=processes,
        progress=False,
    )


def weights(made: Pool) -> list[torch.Tensor]:
    return [torch.cat([v.flatten() for v in m.network.state_dict().values()]) for m in made.members]


@pytest.fixture
def trained_epochs(monkeypatch):
    """How many epochs each seed was trained, from now on."""
    epochs, train = Counter(), pool.train

    def counting(*args, seed, on_epoch, **kwargs):
        def on_each(losses):
            epochs[seed] += 1
            on_epoch(losses)

        return train(*args, seed=seed, on_epoch=on_each, **kwargs)

    monkeypatch.setattr(pool, "train", counting)
    return epochs


def test_finished_members_are_reused(tmp_path, trained_epochs):
    first = make(tmp_path, members=2)
    assert trained_epochs == {0: 6, 1: 6}
    more = make(tmp_path, members=3)
    assert trained_epochs == {0: 6, 1: 6, 2: 6}
    assert all(torch.equal(a, b) for a, b in zip(weights(first), weights(more), strict=False))
    assert len({tuple(w.tolist()) for w in weights(more)}) == 3


def test_an_unfinished_member_goes_on(tmp_path, trained_epochs, monkeypatch):
    whole = make(tmp_path / "whole")
    trained_epochs.clear()
    with monkeypatch.context() as patch:
        # The third member's second epoch is its 10th step of 5 each, after 2 · 30 of the others.
        step, calls = torch.optim.Adam.step, []

        def mortal(self):
            calls.append(1)
            if len(calls) == 72:
                raise KeyboardInterrupt
            return step(self)

        patch.setattr(torch.optim.Adam, "step", mortal)
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path / "cut")
    assert trained_epochs == {0: 6, 1: 6, 2: 2}
    resumed = make(tmp_path / "cut")
    assert trained_epochs == {0: 6, 1: 6, 2: 6}
    assert all(torch.equal(a, b) for a, b in zip(weights(whole), weights(resumed), strict=True))


def test_other_settings_make_another_pool(tmp_path):
    make(tmp_path, members=1)
    make(tmp_path, members=1, settings=dataclasses.replace(SETTINGS, epochs=1))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_damaged_member_is_named(tmp_path):
    make(tmp_path, members=1)
    (member,) = tmp_path.rglob("member-00.safetensors")
    member.write_bytes(member.read_bytes()[:-1])
    with pytest.raises(FileError, match=r"member-00\.safetensors"):
        make(tmp_path, members=1)


@pytest.mark.long
def test_two_processes_make_the_same_pool(tmp_path):
    alone, together = make(tmp_path / "a", 2), make(tmp_path / "b", 2, processes=2)
    assert all(torch.equal(a, b) for a, b in zip(weights(alone), weights(together), strict=True))
    names = sorted(path.name for path in (tmp_path / "b").rglob("*") if path.is_file())
    assert names == [f"member-0{i}.safetensors" for i in range(2)]


def test_draws_share_as_little_as_can_be():
    assert [choose_members(12, 1, t) for t in range(3)] == [[0], [1], [2]]
    for size, shared in ((1, 0), (3, 0), (5, 3), (10, 8)):
        trials = [set(choose_members(12, size, t)) for t in range(3)]
        assert all(len(trial) == size for trial in trials)
        assert max(len(a & b) for a, b in combinations(trials, 2)) == shared
        uses = Counter(index for trial in trials for index in trial)
        assert max(uses.values()) - min(uses[i] for i in range(12)) <= 1


def test_a_pool_draws_its_networks(tmp_path):
    made = make(tmp_path)
    networks = [member.network for member in made.members]
    assert made.draw(2, 1) == [networks[2], networks[0]]
    with pytest.raises(InputError, match="ensemble of 4"):
        made.draw(4, 0)

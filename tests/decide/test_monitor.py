"""The monitor keeps its promise on known streams and finds drifts soon, by Monte Carlo.

Entropy is log-normal and its model abstains above 0.8, so the true shares beyond any threshold are
known. False alarms are counted in units of what is promised: 1 is the limit.
"""

import json
import math
import subprocess
import sys
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import beta, norm

from onesigma import InputError, Monitor, PackageError, Prediction, Reference
from onesigma.decide.history import BLOCKS, History
from onesigma.decide.monitor import BETS, KEPT, Alarm, payoffs
from onesigma.runtime import reference as reference_module
from onesigma.runtime.reference import LEVELS, RISK, SHOWN, read, scores, upper_limit


def answers(n, rng, *, odd=0.0, shift=0.0, z=None):
    """``odd``: the share of inputs unlike any known one; ``shift``: of log entropy, in its std."""
    entropy = np.exp(0.7 * (rng.normal(size=n) if z is None else z) + 0.7 * shift - 1.5)
    novelty = np.where(rng.random(n) < odd, 1e-6, rng.random(n))
    return SimpleNamespace(entropy=entropy, novelty=novelty, act=entropy < 0.8)


def generator(*seed):
    return np.random.default_rng(seed)


def exact():
    """A reference of the true shares: as if learnt from infinitely many inputs."""
    u = np.array([0.001, *LEVELS[1:]])
    up, down = (np.exp(0.7 * norm.ppf(p) - 1.5) for p in (1 - u, u))
    tails = {"novelty": -u, "high entropy": up, "low entropy": -down}
    pairs = {name: tuple(zip(t.tolist(), u.tolist(), strict=True)) for name, t in tails.items()}
    share = float(norm.sf((math.log(0.8) + 1.5) / 0.7))
    return Reference(10**9, {}, {**pairs, "abstained": ((0.0, share),)})


def rates(n, repeats, length, *, false_alarms=0.001, every=1, correlation=0.0):
    """Alarms on known streams, of what is promised, one number per reference."""
    found = []
    for i in range(repeats):
        rng = generator(n, i)
        monitor = Monitor(Reference.learn(answers(n, rng)), false_alarms, every=every)
        monitor.update(answers(length, rng, z=correlated(length, correlation, rng)))
        found.append(monitor.alarm_count * every / (length * false_alarms))
    return np.array(found)


def correlated(n, correlation, rng):
    z = rng.normal(size=n)
    for i in range(1, n if correlation else 0):
        z[i] = correlation * z[i - 1] + math.sqrt(1 - correlation**2) * z[i]
    return z


def mean_and_error(values):
    return np.mean(values), np.std(values) / math.sqrt(len(values))


# The limits and the bets


@pytest.mark.parametrize("n", [1, 20, 300, 20_000])
@pytest.mark.parametrize("doubt", [0.05, 0.002])
def test_upper_limit(n, doubt):
    for count in {0, n // 20, n // 2, n - 1}:
        assert upper_limit(count, n, doubt) == pytest.approx(
            beta.ppf(1 - doubt, count + 1, n - count), rel=2e-6
        )
    assert upper_limit(n, n, doubt) == 1


@pytest.mark.parametrize("ties", [False, True])
def test_all_limits_hold_as_often_as_promised(ties):
    repeats, broken = 600, 0
    for i in range(repeats):
        rng = generator(1, i)
        values = rng.integers(0, 12, (2, 150)) / 12 if ties else rng.random((2, 150))
        learnt = Reference.learn(SimpleNamespace(novelty=values[0], entropy=values[1]))
        pairs = [pair for tail in learnt.tails.values() for pair in tail]
        assert len(learnt.tails) == 3
        assert len(pairs) == 18
        broken += any(
            share_beyond(abs(t), name == "high entropy", ties) > u
            for name, tail in learnt.tails.items()
            for t, u in tail
        )
    assert broken / repeats <= RISK + 5 * math.sqrt(RISK * (1 - RISK) / repeats)


def share_beyond(t, above, ties):
    """Of values uniform in 0..1, or in 0, 1/12, …, 11/12."""
    if not ties:
        return 1 - t if above else t
    grid = np.arange(12) / 12
    return float(np.mean(grid > t) if above else np.mean(grid < t))


@pytest.mark.parametrize("limits", [[0.3], [0.006, 0.02, 0.05, 0.13, 0.3, 0.55]])
def test_a_bet_is_fair_at_the_limits_and_less_below(limits):
    table = payoffs(limits)
    assert np.diff([0, *limits, 1]) @ table == pytest.approx(np.ones(len(BETS)))
    assert (np.diff(table, axis=0) < 0).all()


# The promise


def test_the_promise_holds_and_is_not_wasted():
    """On the true reference, with error bars: half of what is allowed, not a thousandth."""
    monitor, allowed, length = Monitor(exact(), 0.005), 0.005, 150_000
    monitor.update(answers(length, generator(2)))
    rate, error = monitor.alarm_count / length, math.sqrt(allowed / length)
    assert 0.25 * allowed < rate < allowed - 5 * error


@pytest.mark.parametrize("length", [3, 10, 40])
def test_the_promise_holds_from_the_first_input(length):
    counts = []
    for i in range(1500):
        monitor = Monitor(EXACT, 0.02)
        monitor.update(answers(length, generator(3, i)))
        counts.append(monitor.alarm_count)
    mean, error = mean_and_error(counts)
    assert mean <= 0.02 * length + 5 * error


EXACT = exact()


@pytest.mark.parametrize("n", [100, 300])
def test_the_promise_holds_with_few_known_inputs(n):
    found = rates(n, 40, 5000)
    mean, error = mean_and_error(found)
    assert mean + 5 * error < 0.5
    assert np.mean(found > 1) <= RISK


@pytest.mark.parametrize("n", [100, 300])
def test_plain_ranks_would_break_it(n, monkeypatch):
    """So the test above can fail, and the limits are needed."""
    monkeypatch.setattr(reference_module, "upper_limit", lambda count, n, _: (count + 1) / (n + 1))
    assert np.mean(rates(n, 40, 5000) > 1) > 5 * RISK


def test_rounding_leaves_no_more_inputs_beyond():
    rng = generator(3)
    for value in [*rng.normal(size=200), *10.0 ** rng.uniform(-12, 5, 200), 0.0, -1e-320]:
        kept = reference_module._above(float(value))
        assert value <= kept <= value + 1.1e-3 * abs(value) + 1e-300
        assert len(f"{kept:.15g}".replace("-", "").lstrip("0.").partition("e")[0]) <= 6


def test_alike_neighbours_break_it_and_every_helps():
    """As the docs say."""
    dense = rates(1000, 10, 4000, correlation=0.8)
    thin = rates(1000, 10, 40_000, correlation=0.8, every=10)
    assert dense.mean() > 3
    assert thin.mean() < 1


# Drifts


def delays(n, repeats=15, quiet=300, **drift):
    """How many inputs after a drift begins there is an alarm, and of which stream."""
    found, streams = [], []
    for i in range(repeats):
        rng = generator(4, n, i)
        monitor = Monitor(Reference.learn(answers(n, rng)))
        monitor.update(answers(quiet, rng))
        alarms = monitor.update(answers(3000, rng, **drift))
        found.append(alarms[0].index - quiet + 1 if alarms else math.inf)
        streams += [alarms[0].stream] if alarms else []
    return np.median(found), max(set(streams), key=streams.count)


@pytest.mark.parametrize(
    ("drift", "stream", "few", "many"),
    [
        ({"odd": 1.0}, "novelty", 6, 4),
        ({"odd": 0.2}, "novelty", 80, 25),
        ({"odd": 0.05}, "novelty", 1200, 160),
        ({"shift": 1.0}, "high entropy", 90, 45),
        ({"shift": 0.5}, "high entropy", 1500, 200),
        ({"shift": -1.0}, "low entropy", 110, 55),
    ],
    ids=str,
)
def test_a_drift_is_found_soon(drift, stream, few, many):
    assert delays(200, **drift)[0] <= few
    delay, found = delays(1000, **drift)
    assert delay <= many
    assert found == stream or {found, stream} == {"abstained", "high entropy"}


def test_a_long_quiet_time_does_not_blunt_it():
    early, _ = delays(1000, quiet=10, shift=0.5)
    late, _ = delays(1000, quiet=8000, shift=0.5)
    assert late <= 1.5 * early


# The object


def watched(**settings):
    rng = generator(5)
    monitor = Monitor(Reference.learn(answers(500, rng)), **settings)
    stream = answers(1500, rng, odd=0.1)
    stream.entropy[::7] = np.nan
    return monitor, stream


CALM = np.zeros(700)


def part(stream, start, stop):
    return SimpleNamespace(**{name: value[start:stop] for name, value in vars(stream).items()})


@pytest.mark.parametrize("every", [1, 3])
def test_batches_and_a_stop_change_nothing(every):
    whole, stream = watched(every=every)
    told = whole.update(stream)
    parts, _ = watched(every=every)
    again = []
    for start, stop in ((0, 1), (1, 1), (1, 500), (500, 1499), (1499, 1500)):
        again += parts.update(part(stream, start, stop))
        parts = Monitor.from_dict(json.loads(json.dumps(parts.to_dict(), allow_nan=False)))
    assert told == whole.alarms != []
    # Blocks begin elsewhere, so that products are rounded elsewhere.
    assert flat([asdict(alarm) for alarm in again]) == flat([asdict(alarm) for alarm in told])
    assert flat(parts.to_dict()) == flat(whole.to_dict())
    assert str(parts) == str(whole)


def flat(content) -> list:
    """All that it holds, numbers to nine digits."""
    if isinstance(content, dict):
        return [(name, flat(each)) for name, each in content.items()]
    if isinstance(content, list | tuple):
        return [flat(each) for each in content]
    return [f"{content:.9g}" if isinstance(content, float) else content]


@pytest.mark.parametrize(
    ("odd", "false_alarms", "z"),
    [
        (0.0, 1e-3, None),
        (0.02, 1e-3, None),
        (0.5, 1e-3, None),
        (1.0, 1e-140, None),
        (0.0, 1e-3, CALM),
    ],
)
def test_blocks_compute_the_recursion(odd, false_alarms, z):
    """Against one step after the other, with and without alarms; products far beyond a float."""
    monitor = Monitor(Reference.learn(answers(500, generator(5))), false_alarms)
    stream = answers(700, generator(6), odd=odd, z=z)
    payoff = monitor._payoff(scores(read(stream)))
    sums, indices, evidence = np.zeros(payoff.shape[1:]), [], []
    for i, e in enumerate(payoff):
        sums = e * (sums + 1)
        evidence.append(sums.mean())
        if evidence[-1] * monitor.false_alarms >= 1:
            indices.append(i)
            sums = np.zeros_like(sums)
    alarms, found = monitor._test(payoff, np.arange(700))
    np.testing.assert_allclose(found, evidence, rtol=1e-9)
    assert [alarm.index for alarm in alarms] == indices
    assert bool(indices) == (odd > 0.1)
    np.testing.assert_allclose(monitor._sums, sums, rtol=1e-9)


def test_every_tests_each_kth_input():
    sparse, stream = watched(every=4)
    plain, _ = watched()
    thinned = SimpleNamespace(**{name: value[::4] for name, value in vars(stream).items()})
    indices = [alarm.index for alarm in sparse.update(stream)]
    assert indices == [4 * alarm.index for alarm in plain.update(thinned)]
    assert sparse.state == plain.state


def test_invalid_inputs_are_counted_and_not_tested():
    monitor, stream = watched(window=700)
    monitor.update(stream)
    assert monitor.state["invalid"] == pytest.approx(1 / 7)
    clean, _ = watched(window=600)
    valid = np.isfinite(stream.entropy)
    clean.update(SimpleNamespace(**{k: v[valid] for k, v in vars(stream).items()}))
    assert [a.evidence for a in clean.alarms] == [a.evidence for a in monitor.alarms]
    assert {**monitor.state, "invalid": 0.0} == pytest.approx(clean.state)
    assert "14.3 %" in str(monitor)


def test_only_invalid_inputs():
    monitor, _ = watched()
    nothing = np.full(3, np.nan)
    monitor.update(SimpleNamespace(entropy=nothing, novelty=nothing, act=np.zeros(3, bool)))
    assert monitor.state == {"invalid": 1.0}
    assert np.isnan(monitor.history["entropy"]).all()
    assert "100.0 %" in str(monitor)


def test_state_by_hand():
    monitor, _ = watched(window=4)
    assert monitor.state == {}
    values = SimpleNamespace(
        entropy=[9, 1, 2, 3, 4.0], novelty=[0.5, 0.001, 0.5, 0.5, 0.5], act=[0, 1, 1, 0, 1]
    )
    monitor.update(values)
    assert monitor.state == {"novelty": 0.25, "entropy": 2.5, "abstained": 0.25, "invalid": 0.0}


def test_torch_and_the_fields_that_there_are():
    rng = generator(6)
    entropy = torch.tensor(rng.random(200), dtype=torch.bfloat16, requires_grad=True)
    probs = torch.full((200, 2), 0.5)
    learnt = Reference.learn(Prediction(probs, probs, probs, entropy))
    assert set(learnt.tails) == {"high entropy", "low entropy"}
    assert set(learnt.known) == {"entropy"}
    monitor = Monitor(learnt)
    monitor.update(Prediction(probs, probs, probs, entropy + 2))
    assert {alarm.stream for alarm in monitor.alarms} == {"high entropy"}
    assert set(monitor.state) == {"entropy", "invalid"}
    assert "novelty" not in str(monitor)


def test_the_verdict_tells_what_happens():
    rng = generator(7)
    monitor = Monitor(Reference.learn(answers(1000, rng)), window=200)
    assert "known" in str(monitor)
    monitor.update(answers(1000, rng))
    assert monitor.verdict == "no drift found in 1000 inputs"
    monitor.update(answers(60, rng, odd=0.5))
    assert monitor.drifting
    assert monitor.verdict.startswith(f"drift: {monitor.alarm_count} alarms in 1060 inputs, last ")
    monitor.update(answers(400, rng))
    assert not monitor.drifting
    assert monitor.verdict.startswith("no drift now")
    assert "at most one false alarm in 1000 inputs, with 95 % confidence" in monitor.guarantee
    assert sum(monitor.evidence.values()) < 1000


def test_memory_stays_small():
    monitor, _ = watched()
    for i in range(3):
        monitor.update(answers(4000, generator(8, i), odd=1.0))
    assert monitor.alarm_count > KEPT == len(monitor.alarms)
    history = monitor.history
    assert len(history["index"]) <= BLOCKS
    assert history["index"][-1] == monitor.inputs == 12_000
    assert np.mean(history["novelty"]) == pytest.approx(1, abs=0.02)
    assert len(json.dumps(monitor.to_dict())) < 200_000


def test_the_history_is_made_of_averages():
    rng, history = generator(9), History()
    rows, evidence = rng.random((BLOCKS * 3, len(SHOWN))), rng.random(BLOCKS * 3)
    valid = rng.random(BLOCKS * 3) < 0.9
    for piece in np.array_split(np.arange(BLOCKS * 3), 11):
        history.add(
            np.where(valid[piece, None], rows[piece], np.nan), valid[piece], evidence[piece]
        )
    arrays, first = history.arrays(), slice(4)
    assert history.length == 4
    assert arrays["end"][-1] == BLOCKS * 3
    assert arrays["evidence"][0] == evidence[first].max()
    assert arrays["entropy"][0] == pytest.approx(rows[first, 1][valid[first]].mean())
    assert arrays["invalid"].mean() == pytest.approx(1 - valid.mean())


@pytest.mark.parametrize("inputs", [1, 40, 3000])
def test_plot(tmp_path, inputs):
    monitor, _ = watched()
    with pytest.raises(InputError, match="nothing to draw"):
        monitor.plot(tmp_path / "m.png")
    monitor.update(answers(inputs, generator(10), odd=0.1))
    monitor.plot(tmp_path / "m.png")
    assert (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")


def test_plot_without_matplotlib(tmp_path, monkeypatch):
    monitor, stream = watched()
    monitor.update(stream)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PackageError, match="pip install"):
        monitor.plot(tmp_path / "m.png")


def test_no_torch_is_imported():
    program = """
import sys
import numpy as np
from dataclasses import asdict
from types import SimpleNamespace
from onesigma import Monitor, Reference
known = SimpleNamespace(entropy=np.arange(50.0))
print(Monitor(Reference.learn(known)).update(known))
assert not {"torch", "scipy", "matplotlib"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


# What is refused


def test_a_reference_is_small_and_survives_json():
    learnt = Reference.learn(answers(1000, generator(11)))
    text = json.dumps(learnt.to_dict(), allow_nan=False)
    assert len(text) < 1200
    assert Reference.from_dict(json.loads(text)) == learnt


def test_a_model_that_always_abstains():
    known = SimpleNamespace(entropy=generator(12).random(50), act=np.zeros(50))
    assert set(Reference.learn(known).tails) == {"high entropy", "low entropy"}
    with pytest.raises(InputError, match="at least of one"):
        Reference.learn(SimpleNamespace(act=np.zeros(50)))


@pytest.mark.parametrize(
    "change",
    [
        {"n": 0},
        {"n": "many"},
        {"known": {"weight": 1.0}},
        {"known": {"entropy": math.nan}},
        {"tails": {}},
        {"tails": {"weight": [[0.0, 0.5]]}},
        {"tails": {"novelty": []}},
        {"tails": {"novelty": [[0.0, 1.0]]}},
        {"tails": {"novelty": [[0.0, 0.0]]}},
        {"tails": {"novelty": [[math.nan, 0.5]]}},
        {"tails": {"novelty": [[0.0, 0.5], [1.0, 0.6]]}},
        {"tails": {"novelty": [[0.0, 0.5], [-1.0, 0.4]]}},
        {"tails": {"novelty": [[0.0]]}},
        {"tails": 3},
    ],
    ids=str,
)
def test_a_damaged_reference_is_refused(change):
    content = Reference.learn(answers(50, generator(13))).to_dict()
    with pytest.raises(InputError):
        Reference.from_dict({**content, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": None},
        {"sums": [1.0]},
        {"recent": [[1.0, 2.0]]},
        {"alarms": [{"index": 3}]},
        {"history": {"length": 1, "count": 5, "blocks": []}},
        {"history": {"length": 0, "count": 0, "blocks": []}},
        {"reference": {}},
        {"every": 0},
        {"window": "long"},
    ],
    ids=str,
)
def test_a_damaged_state_is_refused(change):
    monitor, stream = watched()
    monitor.update(stream)
    with pytest.raises(InputError):
        Monitor.from_dict({**monitor.to_dict(), **change})


@pytest.mark.parametrize(
    ("prediction", "words"),
    [
        (SimpleNamespace(), "novelty, entropy or act"),
        (SimpleNamespace(entropy=[1.0, 2.0], novelty=[0.5]), "the same length"),
        (SimpleNamespace(novelty=[0.5]), "knows of high entropy"),
        (SimpleNamespace(entropy=None, novelty=[0.5]), "knows of high entropy"),
    ],
)
def test_a_prediction_that_does_not_fit_is_refused(prediction, words):
    monitor, _ = watched()
    before = monitor.to_dict()
    with pytest.raises(InputError, match=words):
        monitor.update(prediction)
    assert monitor.to_dict() == before


def test_wrong_settings_are_refused():
    learnt = Reference.learn(answers(50, generator(14)))
    for settings in ({"false_alarms": 0}, {"false_alarms": 1}, {"window": 0}, {"every": 1.5}):
        with pytest.raises(InputError):
            Monitor(learnt, **settings)
    with pytest.raises(InputError, match="nothing to learn"):
        Reference.learn(SimpleNamespace(entropy=[math.nan]))


def test_an_alarm_is_frozen():
    with pytest.raises(AttributeError):
        Alarm(0, "novelty", 1.0).index = 1


def test_a_map_counts_as_its_average():
    """Positions of one input are not independent, so that they are not counted one by one."""
    entropy, novelty = np.random.default_rng(0).random((2, 50))
    maps = np.stack([entropy - 0.1, entropy + 0.1], 1)
    one, several = (
        Reference.learn(SimpleNamespace(entropy=each, novelty=novelty)) for each in (entropy, maps)
    )
    assert one.known["entropy"] == pytest.approx(several.known["entropy"])
    assert one.n == several.n

"""``fit``, whole: what it returns, promises and refuses."""

import copy
import shutil
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from short_fit import short_fit
from torch import nn

import onesigma
from onesigma import fitting
from onesigma.calibration.exam import divergences
from onesigma.fitting import CLEAN
from onesigma.report import Candidate, Closeness, Report


@pytest.fixture
def quick() -> Iterator[None]:
    """For what does not depend on how close it comes."""
    with short_fit(LONGER=fitting.LONGER):
        yield


X = torch.randn(240, 4, 24, generator=torch.Generator().manual_seed(0))


def network() -> nn.Sequential:
    torch.manual_seed(4)
    layers = [nn.Conv1d(4, 8, 5), nn.BatchNorm1d(8), nn.ReLU(), nn.MaxPool1d(2), nn.Dropout(0.3)]
    last = nn.Linear(80, 3)
    nn.init.normal_(last.weight, std=0.5)  # answers that dropout changes
    return nn.Sequential(*layers, nn.Flatten(), last).eval()


@pytest.fixture(scope="module")
def ready() -> onesigma.Converted:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "LONGER", {})  # it takes a minute, and is not needed
        return onesigma.fit(network(), X)


def test_it_is_as_close_to_monte_carlo_as_promised(ready):
    """On inputs that fit never saw, against Monte Carlo of the user's own network."""
    x = torch.randn(200, 4, 24, generator=torch.Generator().manual_seed(9))
    with torch.no_grad():
        found = ready(x)
    reference = onesigma.mc_dropout(network(), passes=2000, seed=3)(x)
    few = onesigma.mc_dropout(network(), passes=30, seed=4)(x)
    own, theirs = (divergences(reference.probs, each.probs) for each in (found, few))
    assert own.mean() < theirs.mean()
    ratio = found.std.mean(1) / reference.std.mean(1)
    assert 0.85 < float(ratio.median()) < 1.15


def test_the_report_shows_every_candidate(ready):
    report = ready.report
    (chosen,) = [each for each in report.candidates if each.chosen]
    assert chosen.form.startswith(ready.settings.form)
    assert chosen.worst.passes >= 30
    assert {each.kind for each in chosen.kinds} == {
        CLEAN,
        "noise",
        "walk",
        "saturation",
        "spikes",
    }
    assert "(chosen)" in str(report)
    assert "WARNING" not in str(report)


@pytest.mark.usefixtures("quick")
def test_the_model_is_left_as_it_was():
    model = network()
    model.register_forward_hook(lambda *_: None)
    before, hooks = copy.deepcopy(model.state_dict()), dict(model._forward_hooks)
    onesigma.fit(model, X[:80])
    assert not model.training
    assert dict(model._forward_hooks) == hooks
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


@pytest.mark.usefixtures("quick")
def test_the_same_call_gives_the_same_model():
    first, again = (onesigma.fit(network(), X[:80], worth=1) for _ in range(2))
    assert torch.equal(first(X[:5]).probs, again(X[:5]).probs)


@pytest.mark.usefixtures("quick")
def test_an_interrupted_call_goes_on(tmp_path, monkeypatch):
    """Whatever step it was interrupted at, the same call ends in the same model."""
    monkeypatch.setattr(fitting, "LONGER", {2: float("inf")})  # all forms are tried
    whole = onesigma.fit(network(), X[:80], worth=10**6)
    stages = []

    def steps(numbers):
        stages.append(len(numbers))
        if len(stages) in stop_at:
            raise KeyboardInterrupt
        return numbers

    stop_at = {3, 8, 11}
    for _ in range(len(stop_at)):
        with pytest.raises(KeyboardInterrupt):
            onesigma.fit(network(), X[:80], worth=10**6, resume=tmp_path, progress=steps)
    stop_at = set()
    found = onesigma.fit(network(), X[:80], worth=10**6, resume=tmp_path, progress=steps)
    assert found.own is not None
    assert torch.equal(found(X[:5]).probs, whole(X[:5]).probs)
    before = len(stages)
    onesigma.fit(network(), X[:80], worth=10**6, resume=tmp_path, progress=steps)
    assert len(stages) == before  # nothing was left to do
    with pytest.raises(onesigma.InputError, match="begun with another model"):
        onesigma.fit(network(), X[:81], resume=tmp_path)


def test_it_is_saved_and_loaded(ready, tmp_path):
    onesigma.save(ready, tmp_path / "m.safetensors")
    loaded = onesigma.load(tmp_path / "m.safetensors")
    torch.testing.assert_close(loaded(X[:5]).probs, ready(X[:5]).probs, rtol=0, atol=0)
    assert loaded.report.to_dict() == ready.report.to_dict()
    assert str(loaded.report) == str(ready.report)


def test_onnx_and_c_say_the_same(ready, tmp_path):
    pytest.importorskip("onnxruntime")
    onesigma.export(ready, tmp_path / "m.onnx", example_input=X[:8])
    found = onesigma.runtime.load(tmp_path / "m.onnx")(X[:8].numpy())
    with torch.no_grad():
        wanted = ready(X[:8])
    np.testing.assert_allclose(found.probs, wanted.probs.numpy(), atol=1e-5)
    np.testing.assert_allclose(found.var, wanted.var.numpy(), rtol=1e-4, atol=1e-6)
    if shutil.which("gcc"):
        onesigma.export(ready, tmp_path / "firmware", example_input=X[:8])


def test_an_audit_compares_the_output(ready):
    audit = onesigma.audit(ready, X[:40], passes=100)
    assert audit.layers == ()
    assert audit.own is not None
    assert audit.output is not None
    assert audit.output.kl < audit.output.plain_kl / 4
    assert "only the output is compared" in str(audit)


def test_what_is_fitted_is_not_calibrated(ready):
    with pytest.raises(onesigma.InputError, match="fitted already"):
        onesigma.calibrate(ready, X[:20])


@pytest.mark.usefixtures("quick")
def test_the_answer_is_kept_if_asked(tmp_path):
    kept = onesigma.fit(network(), X[:120], keep_answer=True)
    assert kept.settings.form == "energy"
    x = X[120:]
    with torch.no_grad():
        found, wanted = kept(x), network()(x)
    assert torch.equal(found.mean, wanted)
    assert torch.equal(found.plain_probs, wanted.softmax(1))
    assert not torch.equal(found.probs, found.plain_probs)
    assert (found.epistemic > 0).all()
    onesigma.save(kept, tmp_path / "m.safetensors")
    with torch.no_grad():
        assert torch.equal(onesigma.load(tmp_path / "m.safetensors")(x).mean, wanted)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("keep_answer", [False, True])
def test_the_plain_network_beside_it_is_the_original(keep_answer, tmp_path):
    """In one file, and after a move: no weight of the student takes the place of an original's."""
    onnxruntime = pytest.importorskip("onnxruntime")
    found = onesigma.fit(network(), X[:80], keep_answer=keep_answer, worth=1)
    plain = ("plain", network())
    onesigma.export(found, tmp_path / "m.onnx", example_input=X[:8], plain=plain)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    (own,) = session.run(["plain"], {session.get_inputs()[0].name: X[:8].numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(own, network()(X[:8]).numpy(), atol=1e-5)
        moved = found.double()
        torch.testing.assert_close(
            moved.source(X[:8].double())[0], network().double()(X[:8].double())
        )


class Recurrent(nn.Module):
    """Noise between the layers of an LSTM, which no rule carries."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.lstm = nn.LSTM(4, 8, num_layers=2, dropout=0.4, batch_first=True)
        self.last = nn.Linear(8, 3)
        for weight in (*self.lstm.parameters(), self.last.weight):
            nn.init.normal_(weight, std=0.8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.lstm(x.transpose(1, 2))[0][:, -1])


def test_a_network_that_does_not_convert_is_fitted():
    model = Recurrent().eval()
    with pytest.raises(onesigma.OnesigmaError):
        onesigma.convert(model, X[:4])
    with short_fit(ROWS=3000, STEPS=400):
        found = onesigma.fit(model, X, worth=1)
    assert found.settings.form == "distilled"
    assert "NOT carried" not in str(found.report)
    assert [site.rate for site in found.report.sites] == [0.4]
    x = torch.randn(100, 4, 24, generator=torch.Generator().manual_seed(9))
    reference = onesigma.mc_dropout(model, passes=500, seed=3)(x)
    with torch.no_grad():
        own, plain = divergences(reference.probs, found(x).probs), model(x).softmax(1)
    assert own.mean() < divergences(reference.probs, plain).mean() / 2


class Named(nn.Module):
    """Its input has a name, its weights are computed, and its answer is one of two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()
        self.network[0] = nn.utils.weight_norm(self.network[0])

    def forward(self, scale: torch.Tensor | None = None, window: torch.Tensor | None = None):
        return {"window": window, "logits": self.network(window)}


@pytest.mark.usefixtures("quick")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("worth", [1, 10**6])
def test_inputs_and_outputs_with_names(worth):
    """All forms take it, moments too: each has the graph of the network itself as its source."""
    model = Named().eval()
    found = onesigma.fit(model, {"window": X[:60]}, output="logits", worth=worth)
    torch.testing.assert_close(found.source(X[:5])[0], model.network(X[:5]))
    assert torch.equal(found(window=X[:5]).probs, found(X[:5]).probs)
    forms = [each.form for each in found.report.candidates]
    assert ("moments" in forms) == (worth > 1)


class ByHand(Recurrent):
    """Its noise is not written as dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm.dropout = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            x = x * torch.bernoulli(torch.full_like(x, 0.6)) / 0.6
        return super().forward(x)


@pytest.mark.usefixtures("quick")
def test_an_audit_hears_noise_that_no_graph_shows(monkeypatch):
    """The output is compared with the network itself."""
    monkeypatch.setattr(fitting._Course, "judge", judged({"distilled": 40}))
    model = ByHand().eval()
    found = onesigma.fit(model, X[:60])
    assert not found.report.sites
    assert "learnt from Monte Carlo" in str(found.report)
    audit = onesigma.audit(found, X[60:90], passes=60)
    assert audit.own is not None
    assert not audit.contradicted
    reference = onesigma.mc_dropout(model, passes=60, seed=5)(X[60:90])
    with torch.no_grad():
        ratio = float((found(X[60:90]).std / reference.std).median())
    assert audit.own.std_ratio == pytest.approx(ratio, rel=0.2)


@pytest.mark.usefixtures("quick")
def test_where_nothing_is_worth_it_that_is_said():
    found = onesigma.fit(network(), X[:60], worth=10**6)
    forms = [each.form for each in found.report.candidates]
    assert forms == ["distilled", "moments"]  # not longer: that is hopeless
    assert "WARNING: no form is worth 1000000 passes" in str(found.report)


@pytest.mark.parametrize(
    ("passes", "chosen"),
    [
        ([13, 13, 20, 29], 3),  # the closest, whatever it takes
        ([13, 25, 20, 29], 1),  # nearly as close, and cheaper
        ([24, 26, 20, 29], 1),  # of two that take the same the closer
        ([24, 26, 31, 29], 2),  # what is worth it comes first
        ([31, 45, 60, 90], 1),  # as it was best taught
    ],
)
def test_if_nothing_is_worth_it_the_closest_is_returned(passes, chosen):
    settings = [("distilled", 0), ("distilled", 0), ("particles", 4), ("particles", 8)]
    tried = []
    for each, (form, particles) in zip(passes, settings, strict=True):
        kinds = tuple(
            Closeness(kind, 0.1, worth, 1.0, 1.0) for kind, worth in {"a": each, "b": 99}.items()
        )
        made = SimpleNamespace(settings=SimpleNamespace(form=form, particles=particles))
        made.report = Report((), (), ())
        made.with_changes = lambda made=made, **changes: (made, changes["report"])
        tried.append((Candidate(form, 1.0, kinds), made))
    found, report = fitting._chosen(tried, 30, None, [])
    assert found is tried[chosen][1]
    assert [each.chosen for each in report.candidates] == [i == chosen for i in range(4)]
    assert ("WARNING" in str(report.notes)) is (max(passes) < 30)


def judged(passes: dict[str, float], error: float = 1.0):
    """A judge to whom each form is worth what is given, others 12 passes."""

    def judge(course, name, made):
        return Candidate(name, 1.0, (Closeness("clean", 0.1, passes.get(name, 12), error, 1.0),))

    return judge


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("passes", "error", "chosen"),
    [
        ([32], 1, 0),  # certainly worth it
        ([32, 41], 7, 1),  # certainly after twice the time
        ([32, 34, 31], 7, 1),  # perhaps each time: the one that is worth most
        ([25, 26, 33], 7, 2),
    ],
)
def test_a_student_whose_worth_is_uncertain_is_taught_longer(monkeypatch, passes, error, chosen):
    names = ["distilled", *(f"distilled, taught {times}× as long" for times in (2, 4))]
    given = dict(zip(names, passes, strict=False))
    monkeypatch.setattr(fitting._Course, "judge", judged(given, error))
    found = onesigma.fit(network(), X[:60])
    assert [each.form for each in found.report.candidates] == names[: len(passes)]
    assert [each.chosen for each in found.report.candidates].index(True) == chosen


@pytest.mark.usefixtures("quick")
def test_a_student_that_learns_too_slowly_is_not_taught_longer(monkeypatch):
    given = {"distilled": 11, "distilled, taught 2× as long": 19, "moments": 40}
    monkeypatch.setattr(fitting._Course, "judge", judged(given))
    found = onesigma.fit(network(), X[:60])
    assert [each.form for each in found.report.candidates] == list(given)


@pytest.mark.usefixtures("quick")
def test_own_corruptions_are_learnt_from():
    asked = []

    def upside_down(x: torch.Tensor) -> torch.Tensor:
        asked.append(len(x))
        return -x

    onesigma.fit(network(), X[:60], corruptions=[upside_down])
    assert asked


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"unlabelled": X[:10]}, "10 inputs: fit needs at least 40"),
        ({"unlabelled": X[:60] / 0}, "NaN or infinity"),
        ({"worth": 0}, "worth=0"),
        ({"budget": 0.1}, "budget=0.1"),
        (
            {"model": nn.Sequential(nn.Dropout(0.0), nn.Flatten(), nn.Linear(96, 3))},
            "rate p = 0",
        ),
    ],
    ids=["few", "not finite", "worth", "budget", "no noise"],
)
@pytest.mark.usefixtures("quick")
def test_refusals(change, words):
    with pytest.raises(onesigma.OnesigmaError, match=words):
        onesigma.fit(**({"model": network(), "unlabelled": X[:60]} | change))


@pytest.mark.usefixtures("quick")
def test_particles_are_taken_where_no_student_is_worth_it(monkeypatch, tmp_path):
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(fitting._Course, "judge", judged({"4 particles": 40}))
    torch.manual_seed(6)
    model = nn.Sequential(
        *(nn.Conv1d(4, 8, 5), nn.ReLU(), nn.Dropout(0.3), nn.Conv1d(8, 8, 5), nn.ReLU()),
        *(nn.Flatten(), nn.Dropout(0.5), nn.Linear(128, 3)),
    ).eval()
    found = onesigma.fit(model, X[:80])
    forms = [each.form for each in found.report.candidates]
    assert forms == ["distilled", "distilled, taught 2× as long", "2 particles", "4 particles"]
    assert (found.settings.form, found.settings.particles) == ("particles", 4)
    assert "which is sampling" in str(found.report)
    with torch.no_grad():
        wanted = found(X[:6])
    alone = torch.cat([found(x.unsqueeze(0)).probs for x in X[:6]])
    torch.testing.assert_close(alone, wanted.probs)
    onesigma.save(found, tmp_path / "m.safetensors")
    assert torch.equal(onesigma.load(tmp_path / "m.safetensors")(X[:6]).probs, wanted.probs)
    onesigma.export(found, tmp_path / "m.onnx", example_input=X[:6])
    ran = onesigma.runtime.load(tmp_path / "m.onnx")(X[:6].numpy())
    np.testing.assert_allclose(ran.probs, wanted.probs.numpy(), atol=1e-5)


def test_raw_inputs_are_scaled_inside(quick):
    mean, std = [0.0, 5.0, -3.0, 9.8], [1.0, 2.0, 0.5, 3.0]
    shape = (1, 4, 1)
    raw = X * torch.tensor(std).reshape(shape) + torch.tensor(mean).reshape(shape)
    made = onesigma.fit(network(), raw, scaling=(mean, std), worth=1, channels=["a", "b", "c", "d"])
    with torch.no_grad():
        torch.testing.assert_close(made.source(raw[:5])[0], network()(X[:5]), rtol=1e-4, atol=1e-4)
        forgotten = made(X[:20])
    assert float((forgotten.in_contract & (forgotten.novelty >= 0.02)).float().mean()) < 0.1
    assert {words[8] for words in made.explain(forgotten)} <= {"b", "c", "d"}
    with pytest.raises(onesigma.InputError, match="standard deviation"):
        onesigma.fit(network(), raw, scaling=(mean, 0.0))


def test_channels_may_come_last(quick, tmp_path):
    class Turned(nn.Module):
        """Inputs (instants, channels), as recurrent networks have them."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.network(x.permute(0, 2, 1))

    names, std = ["a", "b", "c", "d"], [1.0, 2.0, 0.5, 3.0]
    raw = X.transpose(1, 2) * torch.tensor(std)
    options = {"channels": names, "scaling": ([0.0] * 4, std), "worth": 1}
    made = onesigma.fit(Turned().eval(), raw, **options)
    assert (made.settings.contract.channels, made.settings.contract.window) == (tuple(names), 24)
    assert "(instants, channels)" in str(made.report)
    dead = raw[:5].clone()
    dead[:, :, 2] = 0.0
    with torch.no_grad():
        found = made(dead)
    assert not found.in_contract.any()
    assert all(words.startswith("channel c") for words in made.explain(found))
    onesigma.export(made, tmp_path / "m.onnx", example_input=raw[:2])
    ran = onesigma.runtime.load(tmp_path / "m.onnx")(dead.numpy())
    np.testing.assert_allclose(ran.contract, found.contract.numpy(), rtol=1e-4, atol=1e-4)


def test_scaling_must_fit_an_input():
    with pytest.raises(onesigma.InputError, match=r"mean has the shape \(3,\), an input \(4, 24\)"):
        onesigma.fit(network(), X, scaling=([0.0] * 3, 1.0))


def test_labels_and_names_travel_with_the_model(quick, tmp_path):
    fresh = torch.randn(120, 4, 24, generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        truth = network()(fresh).argmax(1)
    names = ["walk", "run", "sit"]
    made = onesigma.fit(network(), X, worth=1, labelled=(fresh, truth), risk=0.1, class_names=names)
    found = made(X[:9])
    assert found.act.dtype == torch.bool
    assert len(found.reason) == 9
    onesigma.save(made, tmp_path / "m.safetensors")
    assert onesigma.load(tmp_path / "m.safetensors").settings.class_names == tuple(names)
    onesigma.export(made, tmp_path / "m.onnx")
    assert onesigma.runtime.load(tmp_path / "m.onnx").class_names == names
    # Of the final model: its temperature and its rule.
    with torch.no_grad():
        said = made(X)
    known = made.reference.known
    assert known["entropy"] == pytest.approx(float(said.entropy.mean()), rel=0.02)
    assert known["abstained"] == pytest.approx(1 - float(said.act.float().mean()), abs=0.05)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"risk": 0.05}, "labelled"),
        ({"class_names": ["a", "b"]}, "3 names"),
        ({"channels": ["a"]}, "4 names"),
        ({"units": ["g"]}, "1 units for 4 channels"),
    ],
)
def test_what_is_said_of_inputs_and_classes_must_fit(quick, options, words):
    with pytest.raises(onesigma.InputError, match=words):
        onesigma.fit(network(), X, worth=1, **options)


def test_without_a_guard(quick):
    made = onesigma.fit(network(), X, worth=1, guard=False)
    assert made(X[:2]).novelty is None
    assert made.reference is None


def values_network() -> nn.Sequential:
    torch.manual_seed(1)
    layers = [nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 32), nn.ReLU()]
    return nn.Sequential(*layers, nn.Dropout(0.3), nn.Linear(32, 2)).eval()


@pytest.mark.long
def test_regression_is_worth_thirty_passes_and_its_interval_covers(tmp_path):
    """Against Monte Carlo of the user's own network; values scatter more than the network says."""
    x = torch.randn(700, 6, generator=torch.Generator().manual_seed(0))
    model = values_network()
    with torch.no_grad():
        noise = torch.randn(700, 2, generator=torch.Generator().manual_seed(1))
        y = model(x) + noise * torch.tensor([0.1, 1.0])
    known, new = (x[300:500], y[300:500]), (x[500:], y[500:])
    ready = onesigma.fit(model, x[:300], task="regression", labelled=known, risk=0.1)
    (chosen,) = [each for each in ready.report.candidates if each.chosen]
    assert chosen.is_worth(30)
    with torch.no_grad():
        found = ready(new[0])
    reference = onesigma.mc_dropout(model, passes=2000, seed=3, task="regression")(new[0])
    off = (found.mean - reference.mean) / reference.std
    assert float(off.square().mean()) < 1 / 30  # that of 30 passes
    assert 0.95 < float((found.std / reference.std).median()) < 1.05
    inside = ((new[1] >= found.low) & (new[1] <= found.high)).double().mean(0)
    assert bool((inside > 0.9 - 4 * (0.09 / 100 + 0.09 / 200) ** 0.5).all())  # both samples' errors
    onesigma.save(ready, tmp_path / "values.safetensors")
    again = onesigma.load(tmp_path / "values.safetensors")(new[0])
    assert torch.equal(again.low, found.low)
    assert torch.equal(again.high, found.high)
    onesigma.export(ready, tmp_path / "values.onnx")
    there = onesigma.runtime.load(tmp_path / "values.onnx")(new[0].numpy())
    np.testing.assert_allclose(there.high, found.high, rtol=1e-4, atol=1e-5)


def map_network() -> nn.Sequential:
    torch.manual_seed(2)
    layers = [nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Dropout(0.3)]
    layers += [nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Dropout(0.3), nn.Conv2d(8, 3, 1)]
    nn.init.normal_(layers[-1].weight, std=1.0)
    return nn.Sequential(*layers).eval()


@pytest.mark.long
def test_maps_of_logits_are_worth_thirty_passes():
    x = torch.randn(240, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    model = map_network()
    ready = onesigma.fit(model, x)
    new = torch.randn(60, 1, 12, 12, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        found = ready(new)
    assert found.probs.shape == (60, 3, 12, 12)
    assert found.entropy.shape == (60, 12, 12)
    assert found.novelty.shape == (60,)
    reference = onesigma.mc_dropout(model, passes=1000, seed=3)(new)
    few = onesigma.mc_dropout(model, passes=30, seed=4)(new)
    true, own, theirs = (p.probs.movedim(1, -1) for p in (reference, found, few))
    assert divergences(true, own).mean() < divergences(true, theirs).mean()


def test_classes_in_the_last_dimension(quick):
    """As where each step of a series has an answer."""
    torch.manual_seed(3)
    layers = [nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3)]
    x = torch.randn(80, 10, 4, generator=torch.Generator().manual_seed(0))
    ready = onesigma.fit(nn.Sequential(*layers).eval(), x, class_dim=2)
    with torch.no_grad():
        found = ready(x[:5])
    assert found.probs.shape == (5, 10, 3)
    torch.testing.assert_close(found.probs.sum(2), torch.ones(5, 10))
    assert found.epistemic.shape == (5, 10)


def test_values_without_a_dimension_of_their_own_are_refused(quick):
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1), nn.Flatten(0))
    with pytest.raises(onesigma.InputError, match="squeeze"):
        onesigma.fit(model, torch.randn(60, 4), task="regression")


@pytest.mark.parametrize(
    ("more", "words"),
    [({}, "needs risk"), ({"risk": 0.1, "groups": torch.arange(50)}, "for new people")],
)
def test_what_an_interval_needs(quick, more, words):
    labelled = (torch.randn(50, 6), torch.zeros(50, 2))
    with pytest.raises(onesigma.InputError, match=words):
        onesigma.fit(
            values_network(), torch.randn(80, 6), task="regression", labelled=labelled, **more
        )

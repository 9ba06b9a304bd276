"""Saved models: the same answers back, and nothing but an error from a file tampered with."""

import builtins
import json
import struct

import pytest
import torch
from models import inputs_for, trained
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import onesigma
from onesigma import AbstainRule, FileError
from onesigma.storage.tensor_file import digest

X = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3)).eval()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A small converted model and its file, not to be changed."""
    path = tmp_path_factory.mktemp("saved") / "model.safetensors"
    converted = onesigma.convert(small(), X)
    onesigma.save(converted, path)
    return converted, path


def assert_same(a, b) -> None:
    for field in ("mean", "var", "probs", "entropy", "aleatoric", "epistemic"):
        left, right = getattr(a, field), getattr(b, field)
        assert (left is None and right is None) or torch.equal(left, right)


@pytest.mark.parametrize("name", ["norm_after_dropout", "unet", "two_inputs", "decoder"])
def test_round_trip_is_bit_equal(name, tmp_path):
    task = "regression" if name == "decoder" else "classification"
    converted = onesigma.convert(trained(name), inputs_for(name, 2), task=task)
    path = tmp_path / "model.safetensors"
    onesigma.save(converted, path)
    loaded = onesigma.load(path)
    with torch.no_grad():
        for batch in (1, 5):
            x = inputs_for(name, batch)
            assert_same(converted(*x), loaded(*x))
        monte_carlo = [onesigma.mc_dropout(model, 5) for model in (converted, loaded)]
        assert_same(monte_carlo[0](*x), monte_carlo[1](*x))
    assert loaded.report == converted.report
    assert loaded.settings == converted.settings
    assert str(loaded.report) == str(converted.report)
    assert not loaded.training


class OneNumber(nn.Module):
    """Regression without a dimension for the outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 1)

    def forward(self, x):
        return self.layer(nn.functional.dropout(x, 0.3, self.training))[:, 0]


def test_one_number_per_sample(tmp_path):
    converted = onesigma.convert(OneNumber().eval(), X, task="regression")
    onesigma.save(converted, tmp_path / "model")
    assert_same(onesigma.load(tmp_path / "model")(X), converted(X))


def test_with_a_prior_and_with_random_draws(tmp_path):
    converted = onesigma.convert(small(), X, input_std=0.3, sampling="random", draws=10)
    onesigma.save(converted, tmp_path / "m")
    assert_same(converted(X), onesigma.load(tmp_path / "m")(X))


def test_a_loaded_model_is_a_module_like_any_other(saved, tmp_path):
    loaded = onesigma.load(saved[1])
    loaded(X).var.sum().backward()
    assert all(p.grad is not None for p in loaded.parameters() if p.dim() > 1)
    # Its Monte-Carlo reference uses the same weights.
    ours = {p.data_ptr() for p in loaded.parameters()}
    assert {p.data_ptr() for p in loaded.source.parameters()} == ours
    onesigma.save(loaded, tmp_path / "again")
    assert_same(saved[0](X), onesigma.load(tmp_path / "again")(X))
    double = loaded.double()
    assert double(X.double()).mean.dtype == torch.float64
    onesigma.save(double, tmp_path / "double")
    assert_same(double(X.double()), onesigma.load(tmp_path / "double")(X.double()))


def test_weights_are_stored_once(tmp_path):
    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.drop = nn.Linear(400, 400), nn.Linear(400, 3), nn.Dropout(0.5)
            self.three = nn.Linear(400, 400, bias=False)
            self.three.weight = self.one.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.two(self.drop(self.three(self.one(x).relu())))

    model = Wide().eval()
    converted = onesigma.convert(model, torch.randn(2, 400))
    onesigma.save(converted, tmp_path / "m")
    weights = sum(p.numel() * 4 for p in model.parameters())
    assert (tmp_path / "m").stat().st_size < weights + 40_000


def test_tensors_that_share_memory_can_be_saved(tmp_path):
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop, self.head = nn.Dropout(0.3), nn.Linear(6, 3)
            whole = torch.arange(12.0)
            self.register_buffer("whole", whole)
            self.register_buffer("part", whole[:6])

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.drop(x * self.part + self.whole[6:]))

    converted = onesigma.convert(Views().eval(), X)
    onesigma.save(converted, tmp_path / "m")
    assert_same(converted(X), onesigma.load(tmp_path / "m")(X))


# Damage


@pytest.mark.parametrize(
    ("name", "way"),
    [("my.onnx", "onesigma.read_onnx"), ("my.keras", "onesigma.read_keras"),
     ("my.pt", "with PyTorch"), ("my.safetensors", "cannot be read")],
)  # fmt: skip
def test_a_file_of_another_kind_has_another_way(name, way, tmp_path):
    (tmp_path / name).write_bytes(b"12345678")
    with pytest.raises(FileError, match=f"{name}.*{way}"):
        onesigma.load(tmp_path / name)
    with pytest.raises(FileError, match="there is no such file"):
        onesigma.load(tmp_path / f"no-{name}")


def test_missing_and_foreign_files(tmp_path):
    with pytest.raises(FileError, match="absent"):
        onesigma.load(tmp_path / "absent")
    with pytest.raises(FileError):
        onesigma.load(tmp_path)
    (tmp_path / "text").write_text("hello")
    with pytest.raises(FileError, match="text"):
        onesigma.load(tmp_path / "text")
    save_file({"weight": torch.ones(3)}, tmp_path / "plain")
    with pytest.raises(FileError, match="holds tensors alone, such as weights"):
        onesigma.load(tmp_path / "plain")


def test_truncated_at_many_lengths(saved, tmp_path):
    content, path = saved[1].read_bytes(), tmp_path / "cut"
    for length in [0, 1, 7, 8, 9, *range(10, len(content), len(content) // 60), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(FileError):
            onesigma.load(path)


def test_something_appended(saved, tmp_path):
    path = tmp_path / "long"
    path.write_bytes(saved[1].read_bytes() + b"\0\0\0\0")
    with pytest.raises(FileError):
        onesigma.load(path)


def test_any_flipped_bit_is_an_error(saved, tmp_path):
    content, path = saved[1].read_bytes(), tmp_path / "flipped"
    header = 8 + struct.unpack("<Q", content[:8])[0]
    generator = torch.Generator().manual_seed(0)
    positions = [*range(8), *range(8, 400, 3), *range(header - 120, header + 40)]
    positions += torch.randint(len(content), (300,), generator=generator).tolist()
    for position in positions:
        damaged = bytearray(content)
        damaged[position] ^= 1 << int(torch.randint(8, (), generator=generator))
        path.write_bytes(damaged)
        with pytest.raises(FileError):
            onesigma.load(path)


def test_a_shape_beyond_all_numbers(saved, tmp_path):
    """An empty tensor may have it, as far as safetensors is concerned; torch says TypeError."""
    content = saved[1].read_bytes()
    end = 8 + struct.unpack("<Q", content[:8])[0]
    header, size = json.loads(content[8:end]), len(content) - end
    header["added"] = {"dtype": "F32", "shape": [0, 2**63], "data_offsets": [size, size]}
    text = json.dumps(header).encode()
    path = tmp_path / "wide"
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[end:])
    with pytest.raises(FileError, match="cannot be read"):
        onesigma.load(path)


def test_failure_leaves_the_old_file(saved, tmp_path, monkeypatch):
    path = tmp_path / "model"
    path.write_bytes(saved[1].read_bytes())

    def fail(*_args, **_kwargs):
        raise OSError("disk full")

    monkeypatch.setattr("onesigma.storage.tensor_file.save_file", fail)
    with pytest.raises(FileError, match="disk full"):
        onesigma.save(saved[0], path)
    assert path.read_bytes() == saved[1].read_bytes()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("word", [b"onesigma", b"sha256", b"weight"])
def test_text_that_is_no_utf8(saved, word, tmp_path):
    content = saved[1].read_bytes()
    assert word in content
    (tmp_path / "model").write_bytes(content.replace(word, b"\xff\xfe" + word[2:]))
    with pytest.raises(FileError, match=r"model cannot be read.*utf-8|UTF-8"):
        onesigma.load(tmp_path / "model")


# Malice: the JSON rewritten by someone who knows how to recompute the digest


def tampered(path, target, change) -> None:
    """Apply ``change`` to the JSON of a saved model and sign the result."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        metadata = dict(file.metadata())
    tensors = load_file(path)
    content = json.loads(metadata["content"])
    change(content)
    metadata["content"] = json.dumps(content)
    metadata["sha256"] = digest(metadata["content"], tensors)
    save_file(tensors, target, metadata=metadata)


def call(content, index: int = 0) -> dict:
    """The index-th call in the network's graph."""
    return [n for n in content["graphs"]["network"]["nodes"] if n["op"] == "call_function"][index]


def node(content, kind: str) -> dict:
    return next(n for n in content["graphs"]["network"]["nodes"] if n["op"] == kind)


def set_target(name):
    return lambda content: call(content).update(target=name)


def set_name(name):
    return lambda content: call(content).update(name=name)


def set_kwargs(**entries):
    return lambda content: call(content).update(kwargs={"dict": entries})


BOMB = "__import__('builtins').onesigma_was_here()"


def inject_keyword(content):
    """Keyword names go into the generated source as they are, unless someone checks them."""
    call(content)["kwargs"] = {"dict": {f"a={BOMB}, b": 1}}


def inject_attribute(content):
    network = content["graphs"]["network"]
    key = network["tensors"].pop(node(content, "get_attr")["target"])
    node(content, "get_attr")["target"] = f"x;{BOMB}"
    network["tensors"][f"x;{BOMB}"] = key


def inject_placeholder(content):
    entry = node(content, "placeholder")
    entry["name"] = entry["target"] = f"x={BOMB}"


def duplicate_name(content):
    call(content, 1)["name"] = call(content, 0)["name"]


def rename_input(name):
    """A name that is an identifier and yet no name for an argument."""

    def change(content):
        graph = content["graphs"]["network"]
        old = node(content, "placeholder")["name"]
        text = json.dumps(graph["nodes"]).replace(json.dumps(old), json.dumps(name))
        graph["nodes"] = json.loads(text)

    return change


def drop_output(content):
    nodes = content["graphs"]["network"]["nodes"]
    del nodes[-1]


def set_rule(**changes):
    rule = AbstainRule("entropy", 0.5, 0.05, None, 100, 0.9, 0.04).to_dict()
    return lambda content: content["settings"].update(abstain=rule | changes)


def set_setting(**changes):
    return lambda content: content["settings"].update(changes)


def set_temperature(value):
    return lambda content: content["settings"].update(temperature={"value": value})


def deep(content):
    argument: list = []
    for _ in range(400):
        argument = [argument]
    call(content)["args"] = {"tuple": argument}


MALICE = {
    "op_outside_aten": set_target("prim::device.default"),
    "python_function": set_target("os.system"),
    "operator_outside_the_list": set_target("operator.attrgetter"),
    "unknown_op": set_target("aten::no_such_op.default"),
    "dunder": set_target("aten::__class__.__init__"),
    "mutable_op": set_target("aten::relu_.default"),
    "out_variant": set_target("aten::add.out"),
    "reads_a_file": set_target("aten::from_file.default"),
    "writes_a_file": set_target("aten::save.default"),
    "target_is_no_text": set_target(["aten::relu.default"]),
    "name_with_code": set_name(f"x; {BOMB}"),
    "name_with_newline": set_name("x\n"),
    "name_with_import": set_name("x; import os"),
    "name_twice": duplicate_name,
    "keyword_with_code": inject_keyword,
    "attribute_with_code": inject_attribute,
    "placeholder_with_code": inject_placeholder,
    "input_named_by_a_keyword": rename_input("class"),
    "input_named_self": rename_input("self"),
    "kind_of_node": lambda content: call(content).update(op="call_method"),
    "module_call": lambda content: call(content).update(op="call_module", target="source"),
    "unknown_argument_kind": lambda content: call(content).update(args=[{"lambda": "x"}]),
    "unknown_node": lambda content: call(content).update(args=[{"node": "nobody"}]),
    "later_node": lambda content: call(content).update(args=[{"node": call(content, -1)["name"]}]),
    "dtype_that_is_none": lambda content: call(content).update(args=[{"dtype": "load"}]),
    "bad_device": lambda content: call(content).update(args=[{"device": "no such device"}]),
    "no_output": drop_output,
    "deep_nesting": deep,
    "no_settings": lambda content: content.pop("settings"),
    "foreign_setting": lambda content: content["settings"].update(surprise=1),
    "dtype_of_an_input": set_setting(input_dtypes=["nonsense"]),
    "module_for_a_dtype": set_setting(input_dtypes=["nn"]),
    "no_dtypes": set_setting(input_dtypes=[]),
    "shape_in_words": set_setting(input_shapes=[[None, "x"]]),
    "shape_that_does_not_fit": set_setting(input_shapes=[[None, 2]]),
    "shape_beyond_all_memory": set_setting(input_shapes=[[None, 10**12]]),
    "another_task": set_setting(task="regression"),
    "task_that_is_none": set_setting(task=3),
    "class_dim_in_words": set_setting(class_dim="a"),
    "class_dim_of_the_batch": set_setting(class_dim=0),
    "op_that_does_not_fit": lambda content: call(content).update(args=[3]),
    "negative_temperature": set_temperature(-1.0),
    "temperature_in_words": set_temperature("hot"),
    "rule_on_another_score": set_rule(score="__class__"),
    "rule_without_a_number": set_rule(threshold="nan"),
    "rule_with_a_surprise": set_rule(surprise=1),
    "rule_that_risks_all": set_rule(risk=2.0),
    "nodes_are_no_list": lambda content: content["graphs"]["network"].update(nodes=3),
    "no_graphs": lambda content: content.update(graphs=[]),
    "tensor_that_is_not_there": lambda content: content["graphs"]["network"]["tensors"].update(
        dict.fromkeys(content["graphs"]["network"]["tensors"], "absent")
    ),
}


@pytest.mark.parametrize("change", MALICE.values(), ids=MALICE)
def test_a_forged_file_is_refused_and_runs_nothing(saved, tmp_path, monkeypatch, change):
    ran = []
    monkeypatch.setattr(builtins, "onesigma_was_here", lambda: ran.append(1), raising=False)
    tampered(saved[1], tmp_path / "forged", change)
    before = set(tmp_path.iterdir())
    with pytest.raises(FileError):
        onesigma.load(tmp_path / "forged")
    assert not ran
    assert set(tmp_path.iterdir()) == before


def test_an_honest_rewrite_is_accepted(saved, tmp_path):
    """The forger's tool itself makes good files, so the refusals above are for their content."""
    tampered(saved[1], tmp_path / "same", lambda content: None)
    assert_same(saved[0](X), onesigma.load(tmp_path / "same")(X))
    tampered(saved[1], tmp_path / "rule", set_rule())
    assert onesigma.load(tmp_path / "rule").abstain.threshold == 0.5


def test_a_file_from_before_there_were_rules_loads(saved, tmp_path):
    def change(content):
        del content["settings"]["abstain"], content["settings"]["temperature"]

    tampered(saved[1], tmp_path / "old", change)
    assert onesigma.load(tmp_path / "old").settings == saved[0].settings


def with_settings(**settings):
    return lambda content: content["settings"].update(settings)


def test_a_file_from_when_there_were_modes_loads_if_it_had_none(saved, tmp_path):
    plainest = with_settings(mean="matched", variance="full", shift=None)
    tampered(saved[1], tmp_path / "old", plainest)
    assert onesigma.load(tmp_path / "old").settings == saved[0].settings


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"mean": "frozen", "shift": [[0.0]]}, "mean='frozen', which was removed"),
        ({"mean": "matched", "variance": "lowrank"}, "variance='lowrank', which was removed"),
    ],
)
def test_a_mode_that_was_removed_is_named_with_what_to_do(saved, settings, says, tmp_path):
    tampered(saved[1], tmp_path / "old", with_settings(**settings))
    with pytest.raises(FileError, match=rf"old .*{says}.*onesigma\.fit"):
        onesigma.load(tmp_path / "old")


def test_what_cannot_be_saved_is_an_error_and_no_file(tmp_path):
    converted = onesigma.convert(small(), X)
    converted.network.graph.call_function(print)
    with pytest.raises(onesigma.OnesigmaError):
        onesigma.save(converted, tmp_path / "m")
    assert not list(tmp_path.iterdir())

"""Architectures as people in sensing write them, after their papers: small, seeded, untrained.

The code of each is in ``sensing/``. BatchNorm has seen one batch, so that eval mode is sensible.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from sensing import assorted, attention, images, recurrent, series
from torch import Tensor, nn

SAMPLES, SOUND, RAW, BRAIN = (6, 32), (1, 16, 24), (1, 400), (8, 64)
IMAGE, POINTS, FEATURES = (3, 16, 16), (24, 3), (12,)


@dataclass(frozen=True)
class Architecture:
    """One of them.

    Attributes:
        build: makes it, with weights from torch's random state.
        shapes: of one sample of each input; a number for whole numbers from 1 to that.
        kind: a heading of the page.
        traits: what is special about it.
        output: the output that holds the logits, if there are several.
    """

    build: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...] | int, ...]
    kind: str
    traits: frozenset[str] = frozenset()
    output: int | str | None = None


def _of(kind: str, shape, build, *traits: str, output=None) -> Architecture:
    shapes = shape if isinstance(shape[0], tuple) else (shape,)
    return Architecture(build, shapes, kind, frozenset(traits), output)


_remembers = partial(_of, "Recurrent")
_attends = partial(_of, "Attention, gates and mixers")
_image = partial(_of, "Images, and sound as an image")
_series = partial(_of, "Along time")
_other = partial(_of, "Others")

ARCHITECTURES: dict[str, Architecture] = {
    "deep_conv_lstm": _remembers(SAMPLES, recurrent.DeepConvLstm, "recurrent"),
    "crnn": _remembers(SOUND, recurrent.Crnn, "recurrent"),
    "gru_keywords": _remembers(SOUND, recurrent.GruKeywords, "recurrent"),
    "attention_rnn": _remembers(SOUND, recurrent.AttentionRnn, "recurrent", "attention"),
    "deep_sense": _remembers(SAMPLES, recurrent.DeepSense, "recurrent"),
    "lstm_fcn": _remembers(SAMPLES, recurrent.LstmFcn, "recurrent"),
    "bi_lstm": _remembers(SAMPLES, recurrent.BiLstm, "recurrent"),
    "stacked_lstm": _remembers(SAMPLES, recurrent.StackedLstm, "recurrent"),
    "gru_of_lengths": _remembers((SAMPLES, 32), recurrent.GruOfLengths, "recurrent", "inputs"),
    "lstm_cell_loop": _remembers(SAMPLES, recurrent.CellLoop, "recurrent"),
    "locked_gru": _remembers(SAMPLES, recurrent.LockedGru, "recurrent"),
    "keyword_transformer": _attends(SOUND, attention.KeywordTransformer, "attention"),
    "conformer": _attends(SAMPLES, attention.Conformer, "attention"),
    "series_transformer": _attends(SAMPLES, attention.SeriesTransformer, "attention"),
    "attention_pool_cnn": _attends(SAMPLES, attention.AttentionPoolCnn, "attention"),
    "se_resnet": _attends(IMAGE, attention.se_resnet),
    "cbam_cnn": _attends(IMAGE, attention.cbam_cnn),
    "mlp_mixer": _attends(IMAGE, attention.Mixer),
    "gated_mlp": _attends(SAMPLES, attention.GatedMlp),
    "res_mlp": _attends(SAMPLES, attention.ResMlp),
    "fnet": _attends(SAMPLES, attention.FNet),
    "mobilenet_v2": _image(IMAGE, images.mobilenet_v2),
    "mobilenet_v3": _image(SOUND, images.mobilenet_v3),
    "efficientnet": _image(IMAGE, images.efficientnet),
    "shufflenet": _image(IMAGE, images.shufflenet),
    "ghostnet": _image(IMAGE, images.ghostnet),
    "squeezenet": _image(IMAGE, images.squeezenet),
    "densenet": _image(IMAGE, images.densenet),
    "resnext": _image(IMAGE, images.resnext),
    "bc_resnet": _image(SOUND, images.bc_resnet),
    "convnext": _image(IMAGE, images.convnext),
    "unet": _image(IMAGE, images.UNet, "map"),
    "group_norm": _image(IMAGE, images.group_norm),
    "spectral_norm": _image(IMAGE, images.spectral_norm),
    "matchboxnet": _series(SOUND, series.matchboxnet),
    "quartznet": _series(SOUND, series.quartznet),
    "tc_resnet": _series(SOUND, series.tc_resnet),
    "m5": _series(RAW, series.m5),
    "m11": _series(RAW, series.M11),
    "sincnet": _series(RAW, series.SincNet),
    "tcn_weight_norm": _series(SAMPLES, partial(series.Tcn, nn.utils.weight_norm)),
    "tcn_parametrized": _series(
        SAMPLES, partial(series.Tcn, nn.utils.parametrizations.weight_norm)
    ),
    "tcn_channel_dropout": _series(SAMPLES, partial(series.Tcn, nn.Identity(), nn.Dropout1d)),
    "wavenet": _series(SAMPLES, series.WaveNet),
    "inception_time": _series(SAMPLES, series.inception_time),
    "omni_scale": _series(SAMPLES, series.OmniScale),
    "wave_unet": _series(SAMPLES, partial(series.WaveUNet, window=True)),
    "wave_unet_map": _series(SAMPLES, partial(series.WaveUNet, window=False), "map"),
    "eegnet": _other(BRAIN, assorted.eegnet),
    "shallow_conv_net": _other(BRAIN, assorted.ShallowConvNet),
    "tsception": _other(BRAIN, assorted.TSception),
    "point_net": _other(POINTS, assorted.PointNet),
    "deep_sets": _other(POINTS, assorted.DeepSets),
    "two_sensors": _other((SAMPLES, SOUND), assorted.TwoSensors, "inputs"),
    "two_heads": _other(SAMPLES, assorted.TwoHeads, output="activity"),
    "logits_and_features": _other(SAMPLES, assorted.LogitsAndFeatures, output=0),
    "own_layer_norm": _other(FEATURES, assorted.own_layer_norm),
    "always_on": _other(FEATURES, assorted.AlwaysOn, "always on"),
    "self_normalising": _other(FEATURES, assorted.self_normalising),
    "maxout": _other(FEATURES, assorted.Maxout),
    "drop_connect": _other(FEATURES, assorted.DropConnect),
    "own_noise": _other(FEATURES, assorted.OwnNoise),
}


def inputs_for(name: str, batch: int, seed: int = 0) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)

    def one(shape: tuple[int, ...] | int) -> Tensor:
        if isinstance(shape, int):
            return torch.randint(1, shape + 1, (batch,), generator=generator)
        return torch.randn(batch, *shape, generator=generator)

    return tuple(map(one, ARCHITECTURES[name].shapes))


@torch.no_grad()
def build(name: str) -> nn.Module:
    """In eval mode; the same weights each time."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the old weight_norm
        torch.manual_seed(0)
        model = ARCHITECTURES[name].build().train()
        norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        for norm in norms:
            norm.momentum = 1.0
        model(*inputs_for(name, 32, seed=1))
        for norm in norms:
            norm.momentum = 0.1
    return model.eval()


def logits_of(name: str, answer: object) -> Tensor:
    output = ARCHITECTURES[name].output
    return answer if output is None else answer[output]  # type: ignore[index, return-value]


def silenced(model: nn.Module) -> nn.Module:
    """Without noise: all rates, also of recurrent layers and of attention, are 0."""
    for module in model.modules():
        for name in ("p", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model


# What does not work today, by stage: a piece of the error's text.
_RECURRENT = "recurrent layers have no moment rule"
OUTCOMES: dict[str, dict[str, str]] = {
    "fit": {},
    "noise": {},
    "onnx": {},
    "c": {
        name: f"The C generator does not know: {op}"
        for name, op in {
            "group_norm": "InstanceNormalization",
            "wave_unet": "GatherND",
            "wave_unet_map": "GatherND",
            "gru_of_lengths": "GatherElements",
            "fnet": "DFT",
        }.items()
    },
    "silent": {},
    "convert": dict.fromkeys(
        ("deep_conv_lstm", "deep_sense", "bi_lstm", "stacked_lstm", "crnn", "gru_keywords"),
        _RECURRENT,
    )
    | {"fnet": "aten._fft_c2c", "own_noise": "No dropout reaches the output"},
}
# One or two of each kind, for `make test`; with the long tests all are tried.
QUICK = (
    *("gru_keywords", "gru_of_lengths", "lstm_fcn", "attention_pool_cnn", "se_resnet", "gated_mlp"),
    *("mobilenet_v2", "unet", "spectral_norm", "tc_resnet", "m5", "tcn_weight_norm", "eegnet"),
    *("two_sensors", "two_heads", "drop_connect", "maxout", "own_noise"),
)

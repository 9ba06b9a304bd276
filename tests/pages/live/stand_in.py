"""A model that needs no network: sure of "quiet" or "loud", torn between the two near zero."""

from contextlib import contextmanager
from dataclasses import replace
from threading import Thread

import numpy as np

from onesigma.pages.live.feed import Feed
from onesigma.pages.live.model import LiveModel, live_model
from onesigma.pages.live.player import Player
from onesigma.pages.live.server import LiveServer
from onesigma.runtime import Prediction
from onesigma.runtime.contract import Contract
from onesigma.runtime.reference import Reference
from onesigma.storage.opening import Opened

LENGTH, CHANNELS = 4, 2


def predict(x):
    """By the mean of the first channel; half of the uncertainty is epistemic."""
    loud = 1 / (1 + np.exp(-x[:, 0].mean(-1, keepdims=True)))
    probs = np.concatenate([1 - loud, loud], 1)
    entropy = -(probs * np.log(probs)).sum(1)
    return Prediction(np.log(probs), 0 * probs, probs, entropy, entropy / 2, entropy / 2)


def stand_in(predict, shape=(None, CHANNELS, LENGTH), name="m", abstain=None) -> Opened:
    return Opened(name, predict, input_shape=shape, abstain=abstain)


def loud_model(rule=None, **settings) -> LiveModel:
    opened = stand_in(predict, name="stand-in", abstain=rule)
    return live_model(opened, class_names=("quiet", "loud"), **settings)


def guarded_model(rule=None) -> LiveModel:
    """It knows levels up to 10 as whole, and up to 8 as familiar."""

    def guarded(x):
        mean = x.mean(-1)
        novelty = np.where(abs(mean[:, 0]) <= 8, 0.5, 0.001)
        return replace(predict(x.clip(-9, 9)), contract=mean / [10, 100], novelty=novelty)

    contract = Contract(("0", "1"), {"mean": (-10.0, -100.0)}, {"mean": (10.0, 100.0)})
    reference = Reference(1000, {}, {"novelty": ((-0.01, 0.01),)})
    shape = (None, CHANNELS, LENGTH)
    opened = Opened("guarded", guarded, None, ("quiet", "loud"), shape, rule, contract, reference)
    return live_model(opened)


def instants(levels):
    """One instant per level; the second channel is ten times the first."""
    return (np.array([level, 10 * level], np.float32) for level in levels)


def feed(levels, **settings) -> Feed:
    return Feed("some levels", instants(levels), **settings)


@contextmanager
def serving(source, rule=None, model=None, **settings):
    """A server for that feed, whose player is not yet started."""
    player = Player(model or loud_model(rule=rule), source, rate=50, hop=4)
    with LiveServer(player, **settings) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()

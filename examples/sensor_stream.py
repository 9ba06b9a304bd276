"""A sensor stream, windowed and classified live, with the right to abstain.

    python examples/sensor_stream.py model.onnx --rate 50 < samples.csv

One line per instant, one number per channel, from a file or a running sensor. The model is what
``onesigma.export`` wrote; numpy and onnxruntime are all this needs. Each window is answered with a
class, or with "unsure" where the uncertainty is too large: by the model's abstain rule if it has
one (``onesigma.threshold``), else by its entropy. To watch a stream instead: ``onesigma live``.
"""

import argparse
import math
import sys
import time

import numpy as np

from onesigma import runtime
from onesigma.errors import OnesigmaError
from onesigma.tables.stream import Lines, windows


def decide(answer: runtime.Prediction, names: list[str] | None, uncertainty: float) -> str:
    """The class with its probability, or why none; ``uncertainty`` is a share of the most."""
    assert answer.probs is not None
    assert answer.entropy is not None
    assert answer.epistemic is not None
    if answer.act is not None:
        act = bool(answer.act[0])
    else:
        act = bool(answer.entropy[0] < uncertainty * math.log(answer.probs.shape[1]))
    if not act:
        return (
            f"unsure (entropy {answer.entropy[0]:.2f}, of it epistemic {answer.epistemic[0]:.2f})"
        )
    label = int(answer.label[0])
    return f"{names[label] if names else label} {answer.confidence[0]:.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a file that onesigma.export wrote")
    parser.add_argument("--rate", type=float, default=50, help="instants per second; default 50")
    parser.add_argument("--hop", type=int, help="instants from window to window; default: half one")
    parser.add_argument(
        "--uncertainty", type=float, default=0.5, help="abstain above; 0 to 1, default 0.5"
    )
    options = parser.parse_args()
    try:
        model = runtime.load(options.model, threads=1)
        _, *shape = model.input_shapes[0]
        length, took = int(shape[-1] or 0), []
        lines = Lines(channels=math.prod(shape[:-1]))
        instants = lines.instants(sys.stdin)
        for end, window in windows(instants, length, options.hop or length // 2):
            begin = time.perf_counter()
            answer = model(window.T.reshape(1, *shape))  # channels first, as the network takes them
            took.append(time.perf_counter() - begin)
            said = decide(answer, model.class_names, options.uncertainty)
            print(f"{end / options.rate:8.1f} s  {said}", flush=True)
    except OnesigmaError as error:
        print(f"sensor_stream: {error}", file=sys.stderr)
        return 1
    if took:
        print(f"{len(took)} windows, {1e3 * np.median(took):.2f} ms each", file=sys.stderr)
    if lines.bad:
        print(f"{lines.bad} lines could not be read", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

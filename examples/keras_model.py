"""How do I convert a Keras model?

    python examples/keras_model.py

With Keras on its PyTorch backend (no TensorFlow needed) a model converts as it is: the layers keep
their names, `Dropout` and `SpatialDropout1D` are found. You see the report by layer, an answer with
its uncertainty beside Keras' own, and the file that is written for other runtimes. The windows are
made up (waves.py). It needs `pip install '.[keras,onnx]'`.
"""

import os

os.environ["KERAS_BACKEND"] = "torch"  # before Keras is imported

import keras
import torch
from waves import CLASS_NAMES, waves

import onesigma


def trained() -> keras.Model:
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Input((128, 1)),
            keras.layers.Conv1D(16, 7, strides=2, activation="relu", name="first"),
            keras.layers.SpatialDropout1D(0.1),
            keras.layers.Conv1D(32, 5, strides=2, activation="relu", name="second"),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.4),
            keras.layers.Dense(len(CLASS_NAMES), activation="softmax", name="out"),
        ]
    )
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    x, labels = windows(1500, seed=0)
    model.fit(x, labels, epochs=14, batch_size=64, verbose=0)
    return model


def windows(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    x, labels = waves(n, seed=seed)
    return x.transpose(1, 2), labels  # Keras has channels last


def main() -> None:
    model = trained()
    x, labels = windows(200, seed=1)

    converted = onesigma.convert(model, x)
    print(converted.report, end="\n\n")

    with torch.no_grad():
        own, answer = model(x), converted(x)
    right = answer.label == labels
    print(f"accuracy: Keras {(own.argmax(1) == labels).float().mean():.3f}", end=", ")
    print(f"one pass {right.float().mean():.3f}")
    print(f"entropy of one pass: right answers {answer.entropy[right].mean():.2f}", end=", ")
    print(f"wrong ones {answer.entropy[~right].mean():.2f}\n")

    print(onesigma.export(converted, "keras_model.onnx", class_names=CLASS_NAMES))


if __name__ == "__main__":
    main()

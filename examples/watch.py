"""From recordings to a model that abstains, as ONNX and as C: the tutorial as a script.

    python examples/watch.py

docs/tutorial.md and examples/watch.ipynb are written from this file (`python tools/tutorial.py`).
Real recordings of a smartwatch and the network of the demo; it needs `pip install '.[demo,onnx]'`.
"""

# %% [markdown]
# # Tutorial: a smartwatch, from recordings to firmware
#
# You have recordings and a trained network. At the end you have a model that says when to act on
# its answer, as one ONNX file and as a folder of C. It takes about two minutes of one core, nearly
# all of it in `fit`. You need `pip install '.[demo,onnx]'` in a clone of the repository.
#
# The recordings are of ten people who do seven shoulder exercises with a smartwatch. They come
# with the package `seglearn`. The network was trained on persons 1 to 6.

# %%
import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view

import onesigma
from onesigma import runtime
from onesigma.lab import checkpoint
from onesigma.lab.datasets import watch

recordings = watch.recordings()
print(len(recordings), recordings[0].signal.shape)  # (instants, channels)

# %% [markdown]
# ## 1. Cut windows
#
# The network takes windows of 5 seconds: 250 instants of 2 sensors with 3 axes. Keep the values
# raw. The scaling goes into the model in step 2.


# %%
def windows_of(people):
    """Windows that overlap by half, and the class of each."""
    inputs, labels = [], []
    for recording in recordings:
        if int(recording.user) in people:
            cut = sliding_window_view(recording.signal, 250, axis=0)[::125]
            inputs.append(cut.reshape(-1, 2, 3, 250))
            labels.append(np.full(len(cut), recording.labels[0]))
    return torch.tensor(np.concatenate(inputs)), torch.tensor(np.concatenate(labels))


train, _ = windows_of({1, 2, 3, 4, 5, 6})
held_out, held_out_labels = windows_of({7})  # for the rule
test, test_labels = windows_of({8, 9, 10})  # to see whether it works
print(train.shape, held_out.shape, test.shape)

# %% [markdown]
# ## 2. Fit
#
# `fit` needs real inputs without labels; every sixth training window will do. It runs Monte Carlo
# dropout of your network on them, and finds the cheapest form that is as close as 30 passes. The
# labelled windows are of a person that training has not seen. They give a rule for when to act.
# Your network is not changed.

# %%
ready = onesigma.fit(
    checkpoint.load().network,
    train[::6],
    labelled=(held_out, held_out_labels),
    risk=0.05,  # at most 5 % of all inputs acted on and wrong
    scaling=(train.mean((0, -1), keepdim=True)[0], train.std((0, -1), keepdim=True)[0]),
    class_names=watch.CLASS_NAMES,
    channels=["ax", "ay", "az", "wx", "wy", "wz"],
    units=["g", "g", "g", "rad/s", "rad/s", "rad/s"],
    rate=50,
)
print(ready.report)

# %% [markdown]
# The report says which form was chosen, what each form scored, and what it costs. `ready.abstain`
# is the rule, with its promise in one sentence.

# %%
print(ready.abstain)

# %% [markdown]
# ## 3. Try it on new people

# %%
answer = ready.predict(test)
wrong = answer.label != test_labels
print(f"wrong: {wrong.float().mean():.1%}")
print(f"acted on: {answer.act.float().mean():.1%}")
print(f"acted on and wrong: {(answer.act & wrong).float().mean():.1%}")

# %% [markdown]
# We got 18.3 % wrong, 78.6 % acted on, and 8.5 % acted on and wrong. The rule more than halves the
# wrong actions, but 5 % were promised. The promise is for windows like those of the rule, and these
# are of one person only. Labels of more people, with `groups=`, give a promise for new people.
#
# ## 4. Break a sensor
#
# An axis gets stuck. The network still answers, but the guard notices, and names the channel.

# %%
stuck = test[:1].clone()
stuck[:, 0, 2] = 1.0  # az
broken = ready.predict(stuck)
print(broken.reason, broken.act)
print(ready.explain(broken)[0])
assert broken.reason == ["broken input"]

# %% [markdown]
# ## 5. One ONNX file
#
# Scaling, uncertainty, guard and rule are all in the file. On the device you need numpy and
# onnxruntime, no PyTorch.

# %%
print(onesigma.export(ready, "watch.onnx"))

device = runtime.load("watch.onnx", threads=1)
there = device(test[:5].numpy())
for label, act, reason in zip(there.label, there.act, there.reason, strict=True):
    print(device.class_names[label] if act else f"no action: {reason}")
assert (there.label == answer.label[:5].numpy()).all()

# %% [markdown]
# ## 6. A folder of C
#
# The same model as C99 without `malloc`, with all memory planned. The table says what flash and
# RAM it takes.

# %%
print(onesigma.export(ready, "firmware"))

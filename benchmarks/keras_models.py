"""Keras models trained by ``fit``: our step beside Keras' own on JAX's CPU, in one run, on two threads.

    python benchmarks/keras_models.py [--json] [--only PART_OF_NAME] [--seconds 1.0] [--first]

Each model is made twice, with the same weights, and trained by ``fit`` on the same arrays: outside of a strategy by
Keras on JAX (XLA), inside of one by Abele with 8 steps in an execution. Both are told to do so in turns, epoch after
epoch; the first epoch of each, which compiles, is printed apart. A step is the median epoch's time over its steps. The
bars are a geometric mean of Keras' time over ours of 1.3, and none under 0.9; the exit code is 1 where one is missed.

With ``--first`` the first epoch is measured alone, in processes of their own, three of each, and without what is kept
on disk but for what is measured once per host: tracing and compiling, of the transformer and the CNN. The bar is twice
Keras' time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

THREADS = 2
os.environ.setdefault("XLA_FLAGS", f"--xla_cpu_multi_thread_eigen=true intra_op_parallelism_threads={THREADS}")
os.environ.setdefault("OMP_NUM_THREADS", str(THREADS))

import numpy as np  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from abele.frontends.keras.ipu import config, ipu_strategy  # noqa: E402  (chooses Keras' backend)

import keras  # noqa: E402  # isort: skip
from keras import layers  # noqa: E402

MEAN, LEAST, MOST_FIRST = 1.3, 0.9, 2.0
"""Bars: the geometric mean of Keras' step over ours, and the least; our first epoch over Keras'."""
FIRST = ("transformer", "cifar_cnn")
STEPS, EXECUTION = 16, 8

Made = tuple[Any, Any, Any, str]
MODELS: dict[str, Callable[[], Made]] = {}


def model(make: Callable[[], Made]) -> Callable[[], Made]:
    """Add a model: what it is made of, inputs, targets, loss."""
    MODELS[make.__name__] = make
    return make


def _numbers(*shape: int) -> Any:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def _classes(count: int, *shape: int) -> Any:
    return np.random.default_rng(1).integers(0, count, size=shape).astype(np.int32)


SPARSE = "sparse_categorical_crossentropy"


@model
def dense() -> Made:
    """Three layers of 512 on 128 rows."""
    stack = [
        keras.Input((784,)),
        *(layers.Dense(512, activation="relu") for _ in range(2)),
        layers.Dense(10, "softmax"),
    ]
    return keras.Sequential(stack), _numbers(128 * STEPS, 784), _classes(10, 128 * STEPS), SPARSE


@model
def cifar_cnn() -> Made:
    """The CIFAR-10 network of the slides on 32 images."""
    stack = [keras.Input((32, 32, 3))]
    for width in (32, 64):
        stack += [
            layers.Conv2D(width, 3, padding="same", activation="relu"),
            layers.Conv2D(width, 3, activation="relu"),
            layers.MaxPooling2D(2),
            layers.Dropout(0.25),
        ]
    stack += [layers.Flatten(), layers.Dense(512, "relu"), layers.Dropout(0.5), layers.Dense(10, "softmax")]
    return keras.Sequential(stack), _numbers(32 * STEPS, 32, 32, 3), _classes(10, 32 * STEPS), SPARSE


@model
def resnet() -> Made:
    """Four residual blocks of 32 channels on 16 images."""
    x = inputs = keras.Input((32, 32, 3))
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(32, 3, padding="same", use_bias=False)(x)))
    for _ in range(4):
        way = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(32, 3, padding="same", use_bias=False)(x)))
        way = layers.BatchNormalization()(layers.Conv2D(32, 3, padding="same", use_bias=False)(way))
        x = layers.ReLU()(layers.Add()([x, way]))
    made = keras.Model(inputs, layers.Dense(10, "softmax")(layers.GlobalAveragePooling2D()(x)))
    return made, _numbers(16 * STEPS, 32, 32, 3), _classes(10, 16 * STEPS), SPARSE


@model
def mobilenet() -> Made:
    """Four inverted residuals with depthwise convolutions on 16 images."""
    x = inputs = keras.Input((32, 32, 16))
    for _ in range(4):
        way = layers.ReLU(6.0)(layers.BatchNormalization()(layers.Conv2D(64, 1, use_bias=False)(x)))
        way = layers.DepthwiseConv2D(3, padding="same", use_bias=False)(way)
        way = layers.ReLU(6.0)(layers.BatchNormalization()(way))
        x = layers.Add()([x, layers.BatchNormalization()(layers.Conv2D(16, 1, use_bias=False)(way))])
    made = keras.Model(inputs, layers.Dense(10, "softmax")(layers.GlobalAveragePooling2D()(x)))
    return made, _numbers(16 * STEPS, 32, 32, 16), _classes(10, 16 * STEPS), SPARSE


@model
def lstm() -> Made:
    """Two layers of 128 over 32 times and 32 rows."""
    stack = [keras.Input((32, 64)), layers.LSTM(128, return_sequences=True), layers.LSTM(128), layers.Dense(1)]
    return keras.Sequential(stack), _numbers(32 * STEPS, 32, 64), _numbers(32 * STEPS, 1), "mse"


@model
def gru() -> Made:
    """One layer of 128 over 32 times and 32 rows."""
    stack = [keras.Input((32, 64)), layers.GRU(128), layers.Dense(1)]
    return keras.Sequential(stack), _numbers(32 * STEPS, 32, 64), _numbers(32 * STEPS, 1), "mse"


@model
def transformer() -> Made:
    """Two layers of width 128 with 4 heads on 16 rows of 64 tokens."""
    ids = keras.Input((64,), dtype="int32")
    x = layers.Embedding(1000, 128)(ids)
    for _ in range(2):
        x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 32)(x, x))
        x = layers.LayerNormalization()(x + layers.Dense(128)(layers.Dense(512, activation="gelu")(x)))
    made = keras.Model(ids, layers.Dense(10, "softmax")(layers.GlobalAveragePooling1D()(x)))
    return made, _classes(1000, 16 * STEPS, 64), _classes(10, 16 * STEPS), SPARSE


@model
def unet() -> Made:
    """Two levels of 16 and 32 channels on 8 images of 64 x 64."""
    inputs = keras.Input((64, 64, 3))
    top = layers.Conv2D(16, 3, padding="same", activation="relu")(inputs)
    low = layers.Conv2D(32, 3, padding="same", activation="relu")(layers.MaxPooling2D(2)(top))
    up = layers.Conv2DTranspose(16, 2, strides=2)(low)
    x = layers.Conv2D(16, 3, padding="same", activation="relu")(layers.Concatenate()([top, up]))
    return (
        keras.Model(inputs, layers.Conv2D(1, 1)(x)),
        _numbers(8 * STEPS, 64, 64, 3),
        _numbers(8 * STEPS, 64, 64, 1),
        "mse",
    )


def epochs(made: Made, *, ours: bool) -> tuple[Any, Callable[[], float]]:
    """A compiled model, and a function that trains it for an epoch and gives the seconds."""
    net, x, y, loss = made
    execution = EXECUTION if ours else 1
    net.compile(
        keras.optimizers.Adam(1e-3),
        loss,
        metrics=["mae"] if loss == "mse" else ["accuracy"],
        steps_per_execution=execution,
    )

    def epoch() -> float:
        begin = time.perf_counter()
        net.fit(x, y, batch_size=len(x) // STEPS, epochs=1, shuffle=False, verbose=0)
        return time.perf_counter() - begin

    return net, epoch


def trained(make: Callable[[], Made], *, ours: bool) -> tuple[Any, Callable[[], float]]:
    """:func:`epochs` of a model that is made in its scope."""
    keras.utils.set_random_seed(0)
    if not ours:
        return epochs(make(), ours=False)
    with ipu_strategy.IPUStrategy().scope():
        made = make()
    return epochs(made, ours=True)


def first_epoch(name: str, way: str) -> float:
    """Seconds of the first epoch, the median of three processes."""
    known, found = Path(os.environ.get("ABELE_CACHE_DIR", Path.home() / ".cache" / "abele")) / "host", []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            if known.is_dir():
                shutil.copytree(known, Path(folder) / "host")
            command = [sys.executable, __file__, "--one", way, name]
            env = os.environ | {"ABELE_CACHE_DIR": folder}
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
            found.append(float(done.stdout.split()[-1]))
    return statistics.median(found)


def measure(make: Callable[[], Made], seconds: float) -> dict[str, float]:
    """Milliseconds of a step of each, and seconds of the first epoch."""
    _, theirs = trained(make, ours=False)
    net, ours = trained(make, ours=True)
    first = {"keras_first": theirs(), "ours_first": ours()}
    times: dict[str, list[float]] = {"keras": [], "ours": []}
    begin = time.perf_counter()
    while time.perf_counter() - begin < 2 * seconds or len(times["ours"]) < 5:
        times["keras"].append(theirs())
        times["ours"].append(ours())
    net.ipu_session.close()
    return {name: 1e3 * statistics.median(found) / STEPS for name, found in times.items()} | first


def firsts(names: list[str], *, as_json: bool) -> int:
    """Measure first epochs, and print a table or JSON."""
    rows = {name: {way: first_epoch(name, way) for way in ("keras", "ours")} for name in names}
    if as_json:
        print(json.dumps(rows))
    else:
        table = Table("model", "keras s", "ours s", "times Keras'")
        for name, row in rows.items():
            table.add_row(name, *(f"{value:.2f}" for value in (*row.values(), row["ours"] / row["keras"])))
        Console().print(table)
    return 0 if all(row["ours"] <= MOST_FIRST * row["keras"] for row in rows.values()) else 1


def main() -> int:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--first", action="store_true", help="measure first epochs")
    parser.add_argument("--one", nargs=2, metavar=("WAY", "MODEL"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.first:
        return firsts([name for name in FIRST if given.only in name], as_json=given.json)
    cfg = config.IPUConfig()
    cfg.auto_select_ipus = 1
    cfg.configure_ipu_system()
    if given.one:
        print(trained(MODELS[given.one[1]], ours=given.one[0] == "ours")[1]())
        return 0
    rows = {name: measure(make, given.seconds) for name, make in MODELS.items() if given.only in name}
    ratios = [row["keras"] / row["ours"] for row in rows.values()]
    mean = statistics.geometric_mean(ratios)
    if given.json:
        print(json.dumps({"rows": rows, "geometric_mean": mean, "least": min(ratios)}))
    else:
        table = Table("model", "keras ms", "ours ms", "times", "first keras s", "first ours s")
        for (name, row), ratio in zip(rows.items(), ratios, strict=True):
            columns = (row["keras"], row["ours"], ratio, row["keras_first"], row["ours_first"])
            table.add_row(name, *(f"{value:.2f}" for value in columns))
        Console().print(table)
        print(f"geometric mean {mean:.2f}, least {min(ratios):.2f}")
    return 0 if mean >= MEAN and min(ratios) >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())

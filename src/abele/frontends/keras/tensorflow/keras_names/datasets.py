"""``tf.keras.datasets``: files in Keras' folder, or fetched by Keras; else an error names file and folder.

With ``ABELE_KERAS_DATA=made-up`` images and texts of the same shapes and types are made from a seed instead: each class
has a pattern of its own, so that networks learn.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from abele.errors import FileFormatError
from abele.frontends.keras.lookalike import Lookalike

VARIABLE = "ABELE_KERAS_DATA"
MADE_UP = "made-up"
_SEED = 33
_URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"
_FILES = {
    "boston_housing": f"{_URL}boston_housing.npz",
    "california_housing": f"{_URL}california_housing.npz",
    "cifar10": "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    "cifar100": "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    "fashion_mnist": f"{_URL}train-labels-idx1-ubyte.gz",
    "imdb": f"{_URL}imdb.npz",
    "mnist": f"{_URL}mnist.npz",
    "reuters": f"{_URL}reuters.npz",
}
_IMAGES = {
    "mnist": ((28, 28), 10, 60000),
    "fashion_mnist": ((28, 28), 10, 60000),
    "cifar10": ((32, 32, 3), 10, 50000),
    "cifar100": ((32, 32, 3), 100, 50000),
}
_TESTED = 10000
"""Images of the test set of each of these sets."""
_NOISE = 48
"""Levels of grey, of 256, by which an image differs from the pattern of its class."""
Array = npt.NDArray[Any]


class DatasetFileError(FileFormatError, FileNotFoundError):
    """A file of a public data set that is not there and cannot be fetched."""


def _loader(name: str, load: Callable[..., Any]) -> Callable[..., Any]:
    def load_data(*args: Any, **kwargs: Any) -> Any:
        if os.environ.get(VARIABLE) == MADE_UP and name in (*_IMAGES, "imdb"):
            return _texts(**kwargs) if name == "imdb" else _images(name)
        try:
            return load(*args, **kwargs)
        except Exception as error:
            folder = Path(os.environ.get("KERAS_HOME", Path.home() / ".keras")) / "datasets"
            address = _FILES[name]
            raise DatasetFileError(
                f"tf.keras.datasets.{name}: {address.rpartition('/')[2]} is not in {folder}, and could not be fetched",
                because=str(error),
                remedy=f"put the file of {address} there"
                + (f", or set {VARIABLE}={MADE_UP} for data of its shape" if name in (*_IMAGES, "imdb") else ""),
            ) from None

    return load_data


def _images(name: str) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Images of a smooth pattern per class and noise, of whole numbers from 0 to 255."""
    shape, classes, count = _IMAGES[name]
    generator = np.random.default_rng(_SEED)
    coarse = generator.random((classes, 7, 7, *shape[2:]))
    rows, columns = np.arange(shape[0]) * 7 // shape[0], np.arange(shape[1]) * 7 // shape[1]
    patterns = (coarse[:, rows][:, :, columns] * (255 - 2 * _NOISE)).astype(np.uint8)
    found = []
    for size in (count, _TESTED):
        labels = generator.integers(0, classes, size).astype(np.uint8)
        noise = np.frombuffer(generator.bytes(size * int(np.prod(shape))), np.uint8).reshape(size, *shape)
        images = patterns[labels] + (noise.astype(np.uint16) * (2 * _NOISE) >> 8).astype(np.uint8)
        found.append((images, labels[:, None] if name.startswith("cifar") else labels))
    return found[0], found[1]


def _texts(
    num_words: int | None = None,
    maxlen: int | None = None,
    start_char: int | None = 1,
    index_from: int = 3,
    **_: Any,
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Sequences of numbers of words, of which each of two classes has preferred ones."""
    generator, words, found = np.random.default_rng(_SEED), min(num_words or 20000, 20000), []
    for size in (25000, 25000):
        labels = generator.integers(0, 2, size)
        lengths = generator.integers(20, min(maxlen or 300, 300), size)
        common = generator.integers(index_from + 1, words, int(lengths.sum()))
        preferred = generator.integers(index_from + 1, index_from + 21, len(common)) + 20 * labels.repeat(lengths)
        drawn = np.minimum(np.where(generator.random(len(common)) < 0.1, preferred, common), words - 1)
        texts = np.empty(size, object)
        start = [] if start_char is None else [start_char]
        texts[:] = [start + part.tolist() for part in np.split(drawn, np.cumsum(lengths)[:-1])]
        found.append((texts, labels))
    return found[0], found[1]


def datasets(name: str) -> Lookalike:
    """The module of data sets under a name."""
    parts = {}
    for key in _FILES:
        over = getattr(keras.datasets, key)
        parts[key] = Lookalike(f"{name}.{key}", {"load_data": _loader(key, over.load_data)}, over)
    return Lookalike(name, parts, keras.datasets)

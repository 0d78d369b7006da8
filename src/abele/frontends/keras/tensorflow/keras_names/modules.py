"""The modules of ``tf.keras``: Keras 3's names, and beside them those of Keras 2 that programs use."""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import Any

import keras
import keras._tf_keras.keras as older

from abele.frontends.keras.lookalike import Lookalike, RefusedNameError

from ..names.system import SummaryWriter
from .backend import backend
from .datasets import datasets
from .older_steps import let_steps_be_of_keras_2
from .optimizers import OPTIMIZERS, LossScaleOptimizer
from .saving import ModelCheckpoint, let_names_be_any, load_model

_SUBMODULES = [
    "activations",
    "applications",
    "callbacks",
    "config",
    "constraints",
    "dtype_policies",
    "initializers",
    "layers",
    "losses",
    "metrics",
    "models",
    "ops",
    "random",
    "regularizers",
    "saving",
    "tree",
    "utils",
    "wrappers",
]


class LossReduction(older.losses.Reduction):  # type: ignore[misc]
    """Ways to make one loss of those of samples, by the names of Keras 2."""

    AUTO = "sum_over_batch_size"


class TensorBoard(keras.callbacks.Callback):  # type: ignore[misc]
    """A callback that writes nothing, and warns of that."""

    def __init__(self, log_dir: Any = "logs", **_: Any) -> None:
        super().__init__()
        self.log_dir = log_dir
        SummaryWriter(log_dir)


def keras_module(name: str) -> Lookalike:
    """``tf.keras`` under a name."""
    parts: dict[str, Any] = {
        key: Lookalike(f"{name}.{key}", _ADDED.get(key), getattr(older, key, getattr(keras, key, None)))
        for key in _SUBMODULES
    }
    layers = parts["layers"] = Lookalike(f"{name}.layers", {}, older.layers, _REFUSED_LAYERS)
    preprocessing = Lookalike(f"{name}.layers.experimental.preprocessing", {}, older.layers)
    layers.__dict__["experimental"] = Lookalike(
        f"{name}.layers.experimental", {"preprocessing": preprocessing}, older.layers
    )
    parts["backend"] = backend(f"{name}.backend")
    parts["preprocessing"] = _nested(f"{name}.preprocessing", older.preprocessing)
    parts["applications"] = _nested(f"{name}.applications", older.applications)
    parts["datasets"] = datasets(f"{name}.datasets")
    parts["optimizers"] = _optimizers(f"{name}.optimizers")
    parts["mixed_precision"] = _mixed_precision(f"{name}.mixed_precision")
    parts["utils"].np_utils = Lookalike(f"{name}.utils.np_utils", {"to_categorical": keras.utils.to_categorical})
    schedules = {key: getattr(keras.optimizers.schedules, key) for key in _SCHEDULES}
    parts["experimental"] = Lookalike(
        f"{name}.experimental", schedules, refused={"export_saved_model": "model.save('model.keras')"}
    )
    made = Lookalike(name, parts, older, lazy={"ipu": lambda: importlib.import_module("abele.frontends.keras.ipu")})
    made.__dict__["__version__"] = keras.__version__
    return made


_SCHEDULES = ("CosineDecay", "CosineDecayRestarts", "PolynomialDecay")
_TOKENS = "keras.preprocessing.text.Tokenizer and keras.preprocessing.sequence.pad_sequences"
_REFUSED_LAYERS = {
    "TextVectorization": _TOKENS,
    "StringLookup": _TOKENS,
    "IntegerLookup": "tf.gather from a table of numbers",
    "Hashing": "tf.math.floormod of numbers",
    "HashedCrossing": "tf.math.floormod of numbers",
}
"""Layers of Keras that call tables and hashes of TensorFlow itself."""
_LOSSES = (
    "binary_crossentropy",
    "categorical_crossentropy",
    "cosine_similarity",
    "hinge",
    "kl_divergence",
    "log_cosh",
    "mean_absolute_error",
    "mean_absolute_percentage_error",
    "mean_squared_error",
    "mean_squared_logarithmic_error",
    "poisson",
    "sparse_categorical_crossentropy",
    "squared_hinge",
)
_FUNCTIONS = {name: getattr(keras.losses, name) for name in _LOSSES}
_ADDED: dict[str, dict[str, Any]] = {
    "callbacks": {"TensorBoard": TensorBoard, "ModelCheckpoint": ModelCheckpoint},
    "losses": _FUNCTIONS | {"Reduction": LossReduction},
    "metrics": _FUNCTIONS,
    "utils": {"Sequence": keras.utils.PyDataset},
    "models": {"Model": keras.Model, "Sequential": keras.Sequential, "load_model": load_model},
    "saving": {"load_model": load_model},
}


def _nested(name: str, over: Any) -> Lookalike:
    """A module whose modules are lookalikes, too."""
    parts = {key: getattr(over, key) for key in dir(over) if not key.startswith("_")}
    return Lookalike(
        name,
        {key: Lookalike(f"{name}.{key}", {}, part) for key, part in parts.items() if hasattr(part, "__path__")},
        over,
    )


def _optimizers(name: str) -> Lookalike:
    names = OPTIMIZERS | {"LossScaleOptimizer": LossScaleOptimizer}
    kinds = {key: Lookalike(f"{name}.{key}", names, keras.optimizers) for key in ("legacy", "experimental")}
    schedules = Lookalike(f"{name}.schedules", {}, keras.optimizers.schedules)
    return Lookalike(name, names | kinds | {"schedules": schedules}, older.optimizers)


def _mixed_precision(name: str) -> Lookalike:
    names = {"LossScaleOptimizer": LossScaleOptimizer, "Policy": keras.mixed_precision.Policy}
    former = {
        "set_policy": keras.mixed_precision.set_global_policy,
        "global_policy": keras.mixed_precision.global_policy,
    }
    experimental = Lookalike(f"{name}.experimental", names | former, keras.mixed_precision)
    return Lookalike(name, names | {"experimental": experimental}, keras.mixed_precision)


def extend_keras() -> None:
    """Add to Keras' classes what programs of Keras 2 ask of them and they lack; nothing that they have is changed."""
    metric, optimizer = keras.Metric, keras.optimizers.Optimizer
    if not hasattr(metric, "reset_states"):
        metric.reset_states = metric.reset_state
    for kind in (optimizer, *optimizer.__mro__):
        if kind.__name__ == "BaseOptimizer" and not hasattr(kind, "lr"):
            kind.lr = property(lambda self: self.learning_rate, _set_rate)
    let_steps_be_of_keras_2()
    let_names_be_any()
    _let_weights_be_named_first()
    _let_shapes_be_numbers()
    _let_layers_take_older_arguments()


def _let_shapes_be_numbers() -> None:
    """Let ``Input(shape=(80))`` be ``Input(shape=(80,))``, as in Keras 2."""
    own = keras.layers.InputLayer.__init__

    @functools.wraps(own)
    def init(self: Any, shape: Any = None, *args: Any, **kwargs: Any) -> None:
        own(self, (shape,) if isinstance(shape, int) else shape, *args, **kwargs)

    init.__signature__ = inspect.signature(own)  # type: ignore[attr-defined]  # Keras asks for it.
    keras.layers.InputLayer.__init__ = init


_WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    "dynamic": (False,),
    "experimental_autocast": (True, False),
    "fused": (None, True, False),
    "implementation": (1, 2),
    "input_length": (),
    "renorm": (False,),
    "time_major": (False,),
    "virtual_batch_size": (None,),
}
"""Arguments of layers of Keras 2 alone, with the values that change nothing."""


def _let_layers_take_older_arguments() -> None:
    """Let arguments of Keras 2 that change nothing be given, and ``weights`` be set when a layer is built."""
    own = keras.Layer.__init__

    @functools.wraps(own)
    def init(self: Any, *, activity_regularizer: Any = None, trainable: bool = True, **kwargs: Any) -> None:
        for name in [name for name in kwargs if kwargs[name] in _WITHOUT_EFFECT.get(name, ())]:
            del kwargs[name]
        weights = kwargs.pop("weights", None)
        own(self, activity_regularizer=activity_regularizer, trainable=trainable, **kwargs)
        if weights is not None:
            build = self.build

            def build_with_weights(*args: Any, **kwargs: Any) -> None:
                build(*args, **kwargs)
                self.set_weights(weights)

            self.build = build_with_weights

    init.__signature__ = inspect.signature(own)  # type: ignore[attr-defined]
    keras.Layer.__init__ = init


_OLDER_WEIGHT = ("name", "shape", "dtype", "initializer", "regularizer", "trainable", "constraint")
"""Arguments of ``add_weight`` in Keras 2, in order."""
_OF_GRAPHS = ("caching_device", "collections", "experimental_autocast", "getter", "partitioner", "synchronization")


def _let_weights_be_named_first() -> None:
    """Let ``add_weight("w", shape=…)`` be as in Keras 2; what only graphs of TensorFlow need changes nothing."""
    own = keras.Layer.add_weight

    @functools.wraps(own)
    def add_weight(self: Any, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], str):
            kwargs |= dict(zip(_OLDER_WEIGHT, args, strict=False))
            args = ()
        for name in (*_OF_GRAPHS, "use_resource"):
            kwargs.pop(name, None)
        return own(self, *args, **kwargs)

    keras.Layer.add_weight = add_weight
    keras.Layer.add_metric = _refuse_metric


def _refuse_metric(self: Any, *_: Any, **__: Any) -> None:
    raise RefusedNameError(
        f"{type(self).__name__}.add_metric is not there",
        because="Keras 3 has none",
        remedy="self.tracker = keras.metrics.Mean(name=...) in __init__, and self.tracker.update_state(value) in call",
    )


def _set_rate(optimizer: Any, rate: Any) -> None:
    optimizer.learning_rate = rate

"""The module ``tensorflow``: its names, its modules, and what of it is refused."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import jax.numpy as jnp
import keras

from abele.frontends.keras.lookalike import Lookalike
from abele.frontends.keras.private import module_utils

from . import structure
from .data import dataset as dataset_module
from .data.adapter import let_keras_take_datasets
from .data.batching import DatasetSpec
from .data.files import TextLineDataset, TFRecordDataset
from .data.nodes import INFINITE, UNKNOWN
from .data.options import AutoShardPolicy, DatasetOptions
from .data.records import TFRecordOptions, TFRecordWriter
from .dtypes import DTYPES, DType, as_dtype
from .keras_names.modules import extend_keras, keras_module
from .names import system
from .names.arrays import ARRAYS
from .names.control import CONTROL
from .names.examples import PARSING, TRAIN
from .names.files import GFILE, IO
from .names.image import IMAGE
from .names.linalg import LINALG
from .names.math import MATH
from .names.nn import NN
from .names.random import RANDOM
from .names.sampling import Candidates  # noqa: F401  # It adds names to RANDOM and NN.
from .names.strings import STRINGS
from .shapes import TensorShape, TensorSpec, TypeSpec
from .tensors import Tensor, extend_arrays
from .variables import Variable, VariableModule, is_tensor

VERSION = "2.6.3"
"""TensorFlow's version in the SDK that programs for the IPU were written with (Poplar SDK 3.0 to 3.3)."""
_FIT = "model.fit, which trains on the machine"
_DENSE = "dense tensors, padded where rows differ in length"
_TOKENS = "keras.preprocessing.text.Tokenizer"
_REFUSED = {
    "Graph": "programs of TensorFlow 1 do not run; eager functions do",
    "RaggedTensor": _DENSE,
    "SparseTensor": _DENSE,
    "IndexedSlices": _DENSE,
    "RaggedTensorSpec": _DENSE,
    "SparseTensorSpec": _DENSE,
    "load_op_library": "operations of C++ by abele.poplar's codelets",
    "gradients": "tf.GradientTape",
    "hessians": "tf.GradientTape, twice",
}
_REFUSED_MODULES = {
    "estimator": {
        "Estimator": _FIT,
        "EstimatorSpec": _FIT,
        "RunConfig": _FIT,
        "inputs": _FIT,
        "train_and_evaluate": _FIT,
    },
    "feature_column": {"numeric_column": "keras.utils.FeatureSpace", "input_layer": "keras.utils.FeatureSpace"},
    "lookup": {"StaticHashTable": _TOKENS, "StaticVocabularyTable": _TOKENS, "KeyValueTensorInitializer": _TOKENS},
    "ragged": {"constant": _DENSE, "stack": _DENSE, "boolean_mask": _DENSE},
    "sparse": {"SparseTensor": _DENSE, "from_dense": _DENSE, "to_dense": _DENSE, "sparse_dense_matmul": _DENSE},
    "saved_model": {"save": "model.save('model.keras')", "load": "keras.models.load_model('model.keras')"},
    "lite": {"TFLiteConverter": "a modelled machine runs Keras' models as they are"},
    "train": {
        "Checkpoint": "model.save_weights('name.weights.h5')",
        "CheckpointManager": "keras.callbacks.ModelCheckpoint('name.weights.h5', save_weights_only=True)",
        "latest_checkpoint": "the path of a file that model.save_weights wrote",
    },
}
_REFUSED_IO = {
    "VarLenFeature": _DENSE,
    "RaggedFeature": _DENSE,
}
_ROOT_OF_MATH = [
    "abs",
    "add",
    "subtract",
    "multiply",
    "divide",
    "truediv",
    "floordiv",
    "floor",
    "ceil",
    "round",
    "sqrt",
    "square",
    "exp",
    "pow",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "atan2",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "sigmoid",
    "sign",
    "negative",
    "maximum",
    "minimum",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "logical_and",
    "logical_or",
    "logical_not",
    "reduce_sum",
    "reduce_mean",
    "reduce_max",
    "reduce_min",
    "reduce_prod",
    "reduce_any",
    "reduce_all",
    "reduce_logsumexp",
    "argmax",
    "argmin",
    "cumsum",
    "add_n",
    "clip_by_value",
    "scalar_mul",
]
_ROOT_OF_LINALG = ["matmul", "einsum", "tensordot", "norm", "eye", "clip_by_norm", "clip_by_global_norm"]
_IPU = "abele.frontends.keras.ipu"


@cache
def tensorflow() -> Lookalike:
    """The module, made once; JAX's arrays and Keras' classes get what they lack for it."""
    extend_arrays()
    extend_keras()
    let_keras_take_datasets()
    made = Lookalike("tensorflow", _names(), refused=_REFUSED, doc="TensorFlow's names over Keras 3 and JAX, by Abele.")
    # Keras seeds and saves what is TensorFlow's through this module, and its older functions call it.
    seen = module_utils.tensorflow
    seen.module, seen._available = made, True
    return made


def _names() -> dict[str, Any]:
    names: dict[str, Any] = {**DTYPES, **ARRAYS, **CONTROL}
    names |= {name: MATH[name] for name in _ROOT_OF_MATH}
    names |= {name: LINALG[name] for name in _ROOT_OF_LINALG if name not in names}
    names |= {alias: DTYPES[name] for alias, name in {"half": "float16", "double": "float64"}.items()}
    names |= {
        "Tensor": Tensor,
        "Variable": Variable,
        "Module": VariableModule,
        "DType": DType,
        "as_dtype": as_dtype,
        "TensorShape": TensorShape,
        "TensorSpec": TensorSpec,
        "TypeSpec": TypeSpec,
        "is_tensor": is_tensor,
        "print": system.print_tensors,
        "debugging": Lookalike("tensorflow.debugging", {**system.DEBUGGING, "experimental": _quiet("debugging")}),
        "as_string": STRINGS["as_string"],
        "timestamp": system.TIMES["timestamp"],
        "get_logger": lambda: system.LOGGER,
        "UnconnectedGradients": _UnconnectedGradients,
        "random_uniform_initializer": keras.initializers.RandomUniform,
        "random_normal_initializer": keras.initializers.RandomNormal,
        "zeros_initializer": keras.initializers.Zeros,
        "ones_initializer": keras.initializers.Ones,
        "constant_initializer": keras.initializers.Constant,
        "__version__": VERSION,
        "type_spec_from_value": TensorSpec.from_tensor,
    }
    names |= {name: system.DEBUGGING[name] for name in ("Assert", "assert_equal", "assert_less", "assert_greater")}
    tf_keras = keras_module("tensorflow.keras")
    names |= {"keras": tf_keras}
    names |= {name: getattr(tf_keras, name) for name in ("losses", "metrics", "optimizers", "initializers")}
    names |= {name: Lookalike(f"tensorflow.{name}", {}, refused=each) for name, each in _REFUSED_MODULES.items()}
    names["train"].__dict__.update(TRAIN)
    names |= _modules()
    names["__internal__"] = Lookalike("tensorflow.__internal__", {"CompositeTensor": TypeSpec})
    names["core"] = _protobuf()
    names["compat"] = _compat(names)
    names["python"] = _python(names)
    return names


class _UnconnectedGradients:
    NONE = "none"
    ZERO = "zero"


def _quiet(name: str) -> Lookalike:
    return Lookalike(f"tensorflow.{name}.experimental", {"enable_dump_debug_info": system.nothing})


def _modules() -> dict[str, Any]:
    def module(name: str, names: Any = None, **more: Any) -> Lookalike:
        return Lookalike(f"tensorflow.{name}", names, **more)

    gfile = module("io.gfile", GFILE)
    config_experimental = module("config.experimental", system.CONFIG_EXPERIMENTAL)
    config_parts = {
        "experimental": config_experimental,
        "threading": module("config.threading", system.THREADING),
        "optimizer": module("config.optimizer", system.OPTIMIZER),
    }
    convert = CONTROL["do_not_convert"]
    loops = {"do_not_convert": convert, "set_loop_options": system.nothing}
    quiet = {"set_verbosity": system.nothing, "to_graph": convert}
    profiler = module("profiler.experimental", system.PROFILER)
    nest = {
        "flatten": lambda structure_, expand_composites=False: structure.flatten(structure_),
        "map_structure": structure.map_structure,
        "pack_sequence_as": lambda structure_, flat_sequence, expand_composites=False: structure.pack(
            structure_, list(flat_sequence)
        ),
        "assert_same_structure": structure.assert_same_structure,
        "is_nested": lambda tree: isinstance(tree, list | tuple | dict),
    }
    return {
        "math": module("math", {**MATH, **{name: LINALG[name] for name in ("l2_normalize",)}}),
        "nn": module("nn", NN),
        "random": module("random", {**RANDOM, "experimental": module("random.experimental", RANDOM)}),
        "linalg": module("linalg", LINALG),
        "image": module("image", IMAGE | {key: IO[key] for key in IO if key.startswith(("decode_", "encode_"))}),
        "strings": module("strings", STRINGS),
        "io": module(
            "io",
            IO | PARSING | {"gfile": gfile, "TFRecordWriter": TFRecordWriter, "TFRecordOptions": TFRecordOptions},
            refused=_REFUSED_IO,
        ),
        "data": _data(),
        "dtypes": module("dtypes", {**DTYPES, "DType": DType, "as_dtype": as_dtype, "cast": ARRAYS["cast"]}),
        "config": module("config", system.CONFIG | config_parts),
        "test": module("test", system.TEST),
        "summary": module(
            "summary", {**system.SUMMARY, "experimental": module("summary.experimental", system.SUMMARY)}
        ),
        "profiler": module("profiler", {"experimental": profiler}),
        "errors": module("errors", system.ERRORS),
        "nest": module("nest", nest),
        "autograph": module("autograph", {**quiet, "experimental": module("autograph.experimental", loops)}),
        "distribute": _distribute(),
        "version": module("version", {"VERSION": VERSION, "COMPILER_VERSION": "", "GIT_VERSION": ""}),
        "sysconfig": module("sysconfig", refused={"get_include": "there is no TensorFlow to compile against"}),
        "experimental": module(
            "experimental",
            {"async_scope": system.nothing_in_scope, "numpy": Lookalike("tensorflow.experimental.numpy", {}, jnp)},
        ),
        "audio": module("audio", refused={"decode_wav": "Python's module wave"}),
        "signal": module(
            "signal",
            {
                name: _transform(name)
                for name in ("fft", "fft2d", "ifft", "ifft2d", "irfft", "irfft2d", "rfft", "rfft2d")
            },
            refused={"stft": "keras.ops.stft"},
        ),
    }


def _transform(name: str) -> Any:
    """A Fourier transform by TensorFlow's name."""
    function = getattr(jnp.fft, name.replace("2d", "2"))
    over = (-2, -1) if name.endswith("2d") else (-1,)
    several = len(over) > 1

    def transform(input: Any, fft_length: Any = None, name: str | None = None) -> Any:
        lengths = None if fft_length is None else tuple(int(n) for n in jnp.ravel(jnp.asarray(fft_length)))
        if several:
            return function(jnp.asarray(input), lengths, over)
        return function(jnp.asarray(input), None if lengths is None else lengths[0])

    return transform


def _data() -> Lookalike:
    experimental = {
        "AUTOTUNE": dataset_module.AUTOTUNE,
        "AutoShardPolicy": AutoShardPolicy,
        "DistributeOptions": lambda: DatasetOptions("experimental_distribute"),
        "OptimizationOptions": lambda: DatasetOptions("experimental_optimization"),
        "ThreadingOptions": lambda: DatasetOptions("threading"),
        "INFINITE_CARDINALITY": INFINITE,
        "UNKNOWN_CARDINALITY": UNKNOWN,
        "cardinality": lambda dataset: dataset.cardinality(),
        "assert_cardinality": lambda expected_cardinality: lambda dataset: dataset,
        "prefetch_to_device": lambda device, buffer_size=None: lambda dataset: dataset,
        "copy_to_device": lambda target_device, source_device="": lambda dataset: dataset,
        "Counter": dataset_module.Dataset.counter,
        "RandomDataset": dataset_module.Dataset.random,
        "get_single_element": lambda dataset: dataset.get_single_element(),
        "sample_from_datasets": dataset_module.Dataset.sample_from_datasets,
        "choose_from_datasets": dataset_module.Dataset.choose_from_datasets,
        "map_and_batch": lambda map_func, batch_size, drop_remainder=False, **_: (
            lambda dataset: dataset.map(map_func).batch(batch_size, drop_remainder)
        ),
        "shuffle_and_repeat": lambda buffer_size, count=None, seed=None: (
            lambda dataset: dataset.shuffle(buffer_size, seed).repeat(count)
        ),
        "unbatch": lambda: lambda dataset: dataset.unbatch(),
        "bucket_by_sequence_length": lambda *args, **kwargs: (
            lambda dataset: dataset.bucket_by_sequence_length(*args, **kwargs)
        ),
        "parallel_interleave": lambda map_func, cycle_length, block_length=1, **_: (
            lambda dataset: dataset.interleave(map_func, cycle_length, block_length)
        ),
    }
    names = {
        "Dataset": dataset_module.Dataset,
        "TextLineDataset": TextLineDataset,
        "TFRecordDataset": TFRecordDataset,
        "Iterator": dataset_module.DatasetIterator,
        "Options": DatasetOptions,
        "AUTOTUNE": dataset_module.AUTOTUNE,
        "DatasetSpec": DatasetSpec,
        "INFINITE_CARDINALITY": INFINITE,
        "UNKNOWN_CARDINALITY": UNKNOWN,
        "experimental": Lookalike("tensorflow.data.experimental", experimental),
    }
    return Lookalike("tensorflow.data", names)


def _distribute() -> Lookalike:
    strategies = ("MirroredStrategy", "MultiWorkerMirroredStrategy", "TPUStrategy", "OneDeviceStrategy", "Strategy")
    remedy = "ipu.ipu_strategy.IPUStrategy(), whose replicas are set by IPUConfig"
    names = {
        "get_strategy": lambda: _DefaultStrategy(),
        "has_strategy": lambda: False,
        "in_cross_replica_context": lambda: True,
        "ReduceOp": type("ReduceOp", (), {"SUM": "sum", "MEAN": "mean"}),
    }
    return Lookalike("tensorflow.distribute", names, refused=dict.fromkeys(strategies, remedy))


class _DefaultStrategy:
    num_replicas_in_sync = 1

    def scope(self) -> Any:
        return system.nothing_in_scope()

    def run(self, fn: Any, args: Any = (), kwargs: Any = None) -> Any:
        return fn(*args, **(kwargs or {}))

    def reduce(self, reduce_op: Any, value: Any, axis: Any = None) -> Any:
        return value


def _compat(names: dict[str, Any]) -> Lookalike:
    """``tf.compat``: TensorFlow 2's names, and of TensorFlow 1 what programs of TensorFlow 2 still call."""
    former = {
        "logging": Lookalike("tensorflow.compat.v1.logging", system.LOGGING),
        "enable_eager_execution": system.nothing,
        "enable_v2_behavior": system.nothing,
        "enable_resource_variables": system.nothing,
        "set_random_seed": RANDOM["set_seed"],
        "reset_default_graph": system.nothing,
        "global_variables_initializer": system.nothing,
        "random_uniform": RANDOM["uniform"],
        "random_normal": RANDOM["normal"],
        "ConfigProto": AnySettings,
        "Dimension": type("Dimension", (), {"__doc__": "A dim of TensorFlow 1: there is none."}),
    }
    eager = "programs of TensorFlow 1 do not run; eager functions, tf.function and model.fit do"
    sessions = ("Session", "InteractiveSession", "placeholder", "disable_eager_execution", "disable_v2_behavior")
    refused = dict.fromkeys((*sessions, "get_variable", "variable_scope", "layers"), eager)
    plain = {name: part for name, part in names.items() if name not in ("logging", "layers")}
    v1 = Lookalike("tensorflow.compat.v1", {**plain, **former}, refused=refused)
    v2 = Lookalike("tensorflow.compat.v2", names)
    return Lookalike("tensorflow.compat", {**system.COMPAT, "v1": v1, "v2": v2})


class AnySettings:
    """A message of settings: any attribute may be set, and makes no difference."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = AnySettings()
        object.__setattr__(self, name, made)
        return made


_DEPRECATION = {"_PRINT_DEPRECATION_WARNINGS": False, "deprecated": lambda *_, **__: lambda function: function}
_PLACES = {
    "engine": {
        "base_layer": "layers",
        "data_adapter": "utils",
        "functional": "models",
        "input_layer": "layers",
        "sequential": "models",
        "training": "models",
    },
    "optimizer_v2": {
        "adam": "optimizers",
        "adamax": "optimizers",
        "gradient_descent": "optimizers",
        "learning_rate_schedule": "optimizers.schedules",
        "optimizer_v2": "optimizers",
        "rmsprop": "optimizers",
    },
    "mixed_precision": {"loss_scale_optimizer": "mixed_precision", "policy": "mixed_precision"},
}
"""Modules of ``tensorflow.python.keras``, and the public ones that have their names."""


def _former_keras(keras_names: Lookalike) -> Lookalike:
    """``tensorflow.python.keras``: classes by the place where TensorFlow defines them."""
    own = {"OptimizerV2": keras.optimizers.Optimizer}
    parts: dict[str, Any] = {}
    for package, modules in _PLACES.items():
        found = {}
        for key, public in modules.items():
            over: Any = keras_names
            for part in public.split("."):
                over = getattr(over, part)
            found[key] = Lookalike(f"tensorflow.python.keras.{package}.{key}", own, over)
        parts[package] = Lookalike(f"tensorflow.python.keras.{package}", found, getattr(keras_names, package, None))
    return Lookalike("tensorflow.python.keras", parts, keras_names)


def _protobuf() -> Lookalike:
    """``tensorflow.core``: messages of settings."""
    messages = dict.fromkeys(("ConfigProto", "GPUOptions", "RunOptions", "OptimizerOptions"), AnySettings)
    config = Lookalike("tensorflow.core.protobuf.config_pb2", messages)
    rewriter = Lookalike("tensorflow.core.protobuf.rewriter_config_pb2", {"RewriterConfig": AnySettings})
    protobuf = {"config_pb2": config, "rewriter_config_pb2": rewriter}
    return Lookalike("tensorflow.core", {"protobuf": Lookalike("tensorflow.core.protobuf", protobuf)})


def _python(names: dict[str, Any]) -> Lookalike:
    """``tensorflow.python``: the modules of TensorFlow that programs for the IPU import by their place."""
    every = {**STRINGS, **LINALG, **IMAGE, **RANDOM, **NN, **MATH, **ARRAYS, **CONTROL, **names}

    def module(name: str, parts: Any = None) -> Lookalike:
        return Lookalike(f"tensorflow.python.{name}", parts)

    ops = {
        key: module(f"ops.{key}", every)
        for key in [
            "array_ops",
            "clip_ops",
            "check_ops",
            "control_flow_ops",
            "embedding_ops",
            "gen_math_ops",
            "image_ops",
            "init_ops",
            "linalg_ops",
            "logging_ops",
            "losses",
            "math_ops",
            "nn",
            "nn_ops",
            "random_ops",
            "script_ops",
            "state_ops",
            "string_ops",
            "variable_scope",
            "variables",
        ]
    }
    framework = {
        "dtypes": names["dtypes"],
        "errors": names["errors"],
        "constant_op": module("framework.constant_op", {"constant": ARRAYS["constant"]}),
        "tensor_shape": module("framework.tensor_shape", {"TensorShape": TensorShape}),
        "tensor_spec": module("framework.tensor_spec", {"TensorSpec": TensorSpec}),
        "random_seed": module("framework.random_seed", {"set_seed": RANDOM["set_seed"]}),
        "ops": module("framework.ops", every),
        "test_util": module("framework.test_util", {"TensorFlowTestCase": system.NumericTestCase}),
    }
    eager = {
        "backprop": module("eager.backprop", {"GradientTape": CONTROL["GradientTape"]}),
        "def_function": module("eager.def_function", {"function": CONTROL["function"]}),
        "context": module("eager.context", {"executing_eagerly": CONTROL["executing_eagerly"]}),
    }
    datasets = module("data.ops.dataset_ops", {**names["data"].__dict__, "DatasetV2": dataset_module.Dataset})
    data_ops = module("data.ops", {"dataset_ops": datasets})
    python_keras = _former_keras(names["keras"])
    platform = {
        "tf_logging": module("platform.tf_logging", system.LOGGING),
        "gfile": names["io"].gfile,
        "test": names["test"],
        "googletest": names["test"],
    }
    return Lookalike(
        "tensorflow.python",
        {
            "ops": module("ops", ops),
            "framework": module("framework", framework),
            "eager": module("eager", eager),
            "data": module("data", {**names["data"].__dict__, "ops": data_ops}),
            "client": module(
                "client",
                {
                    "device_lib": module(
                        "client.device_lib", {"list_local_devices": system.CONFIG["list_logical_devices"]}
                    )
                },
            ),
            "types": module("types", {"core": module("types.core", {"Tensor": Tensor, "TensorLike": Any})}),
            "platform": module("platform", platform),
            "util": module("util", {"nest": names["nest"], "deprecation": module("util.deprecation", _DEPRECATION)}),
            "keras": python_keras,
            "distribute": names["distribute"],
            "training": module("training", {}),
        },
        lazy={"ipu": lambda: importlib.import_module(_IPU)},
    )

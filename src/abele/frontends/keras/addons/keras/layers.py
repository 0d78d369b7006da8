"""``ipu_tensorflow_addons.keras.layers``: layers under the IPU's names, as Keras layers."""

from __future__ import annotations

from typing import Any, NoReturn

import jax

from abele.errors import InvalidOptionError, UnsupportedOpError
from abele.frontends.keras.ipu.ops.math_ops import serialized_matmul
from abele.frontends.keras.ipu.pipelining_ops import recomputation_checkpoint
from abele.frontends.keras.private import keras

ops = keras.ops
EPSILON = 1.53e-5
"""Added to variances by the IPU's norms, which have it in float16 too."""

# --- recurrent layers -------------------------------------------------------------------------------------------------

_ABSENT = {
    "kernel_regularizer": None,
    "recurrent_regularizer": None,
    "bias_regularizer": None,
    "activity_regularizer": None,
    "kernel_constraint": None,
    "recurrent_constraint": None,
    "bias_constraint": None,
    "recurrent_dropout": 0.0,
    "go_backwards": False,
    "unroll": False,
    "use_bias": True,
}
"""Arguments of Keras' recurrent layers that the IPU's lack, with the one value allowed."""


def _checked(layer: str, given: dict[str, Any]) -> dict[str, Any]:
    for name, allowed in _ABSENT.items():
        if name in given and given[name] != allowed and given[name] is not allowed:
            raise InvalidOptionError(
                f"{layer} does not take {name}={given[name]!r}",
                because="the machine's recurrent layers have no such part",
                remedy=f"keras.layers.{layer}, which is read step by step",
            )
    return given


class _Recurrent:
    """Options of the IPU's recurrent layers beside Keras'."""

    def _note(
        self, partials_dtype: Any, shares: tuple[float | None, ...], libraries: tuple[Any, ...], *, time_major: bool
    ) -> None:
        for share in shares:
            if share is not None and not share > 0:
                raise InvalidOptionError(f"available_memory_proportion is above 0, not {share!r}")
        for given in libraries:
            if given is not None and not isinstance(given, dict):
                raise InvalidOptionError(f"options are a dict of names of PopLibs and their values, not {given!r}")
        self.partials_dtype, self.time_major = partials_dtype, bool(time_major)
        self.available_memory_proportion_fwd, self.available_memory_proportion_bwd = shares
        self.options, self.options_bwd = (dict(given or {}) for given in libraries)

    def _noted(self) -> dict[str, Any]:
        """Arguments beside Keras', for ``get_config``."""
        names = ("time_major", "available_memory_proportion_fwd", "available_memory_proportion_bwd")
        partials = getattr(self.partials_dtype, "name", self.partials_dtype)
        found = {name: getattr(self, name) for name in (*names, "options", "options_bwd")}
        return found | {"partials_dtype": str(partials)}


def _by_batch(layer: Any, call: Any, sequences: Any, **kwargs: Any) -> Any:
    """A layer's call on sequences that may have time first."""
    if not layer.time_major:
        return call(sequences, **kwargs)
    result = call(ops.swapaxes(sequences, 0, 1), **kwargs)
    if not layer.return_sequences:
        return result
    if isinstance(result, (list, tuple)):
        return [ops.swapaxes(result[0], 0, 1), *result[1:]]
    return ops.swapaxes(result, 0, 1)


class LSTM(keras.layers.LSTM, _Recurrent):  # type: ignore[misc]
    """Long short-term memory.

    Args:
        units: Width of the state.
        partials_dtype: Kept with the layer, as the following options are; none changes anything.
        seed: Seed of dropout.
        dropout_seed: The same.
        time_major: True for sequences [time, batch, features].
        available_memory_proportion_fwd: Kept alone.
        available_memory_proportion_bwd: Kept alone.
        options: Kept alone.
        options_bwd: Kept alone.
        **kwargs: As of ``keras.layers.LSTM``, without regularisers, constraints, recurrent dropout, backwards, unroll.

    Raises:
        InvalidOptionError: One of the last.
    """

    def __init__(
        self,
        units: int,
        partials_dtype: Any = "float32",
        seed: Any = None,
        dropout_seed: Any = None,
        time_major: bool = False,
        available_memory_proportion_fwd: float | None = None,
        available_memory_proportion_bwd: float | None = None,
        options: Any = None,
        options_bwd: Any = None,
        **kwargs: Any,
    ) -> None:
        chosen = dropout_seed if dropout_seed is not None else seed
        super().__init__(units, seed=chosen, **_checked("LSTM", kwargs))
        shares = (available_memory_proportion_fwd, available_memory_proportion_bwd)
        self._note(partials_dtype, shares, (options, options_bwd), time_major=time_major)

    def call(self, sequences: Any, initial_state: Any = None, mask: Any = None, training: bool = False) -> Any:
        """The states of all times, or the last one."""
        return _by_batch(self, super().call, sequences, initial_state=initial_state, mask=mask, training=training)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the layer."""
        config = {name: value for name, value in super().get_config().items() if name not in _ABSENT}
        return config | self._noted()


class GRU(keras.layers.GRU, _Recurrent):  # type: ignore[misc]
    """Gated recurrent units.

    Args:
        units: Width of the state.
        partials_dtype: Kept with the layer, as the following options are; none changes anything.
        seed: Seed of dropout.
        dropout_seed: The same.
        time_major: True for sequences [time, batch, features].
        available_memory_proportion_fwd: Kept alone.
        available_memory_proportion_bwd: Kept alone.
        options: Kept alone.
        options_bwd: Kept alone.
        reset_after: True to apply the reset gate after the product.
        **kwargs: As of ``keras.layers.GRU``, without regularisers, constraints, recurrent dropout, backwards, unroll.

    Raises:
        InvalidOptionError: One of the last.
    """

    def __init__(
        self,
        units: int,
        partials_dtype: Any = "float32",
        seed: Any = None,
        dropout_seed: Any = None,
        time_major: bool = False,
        available_memory_proportion_fwd: float | None = None,
        available_memory_proportion_bwd: float | None = None,
        options: Any = None,
        options_bwd: Any = None,
        reset_after: bool = False,
        **kwargs: Any,
    ) -> None:
        chosen = dropout_seed if dropout_seed is not None else seed
        super().__init__(units, seed=chosen, reset_after=reset_after, **_checked("GRU", kwargs))
        shares = (available_memory_proportion_fwd, available_memory_proportion_bwd)
        self._note(partials_dtype, shares, (options, options_bwd), time_major=time_major)

    def call(self, sequences: Any, initial_state: Any = None, mask: Any = None, training: bool = False) -> Any:
        """The states of all times, or the last one."""
        return _by_batch(self, super().call, sequences, initial_state=initial_state, mask=mask, training=training)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the layer."""
        config = {name: value for name, value in super().get_config().items() if name not in _ABSENT}
        return config | self._noted()


PopnnLSTM, PopnnGRU = LSTM, GRU

# --- norms ------------------------------------------------------------------------------------------------------------


class GroupNormalization(keras.layers.Layer):  # type: ignore[misc]
    """Norm over groups of channels.

    Args:
        groups: Number of groups; it divides the channels.
        channels_axis: The dimension of channels.
        center: True to add a learnt number to each channel.
        scale: True to multiply by one.
        epsilon: Added to variances.
        beta_initializer: Of what is added.
        gamma_initializer: Of what is multiplied.
        strided_channel_grouping: True for groups of every ``groups``-th channel; False for neighbours, as in Keras.
        trainable: True to train both.
        **kwargs: As of Keras layers.
    """

    def __init__(
        self,
        groups: int = 2,
        channels_axis: int = -1,
        center: bool = True,
        scale: bool = True,
        epsilon: float = EPSILON,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        strided_channel_grouping: bool = True,
        trainable: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(trainable=trainable, **kwargs)
        self.groups, self.channels_axis, self.epsilon = groups, channels_axis, epsilon
        self.center, self.scale, self.strided = center, scale, strided_channel_grouping
        self.beta_initializer = keras.initializers.get(beta_initializer)
        self.gamma_initializer = keras.initializers.get(gamma_initializer)

    def build(self, input_shape: Any) -> None:
        """Make what is learnt."""
        channels = input_shape[self.channels_axis]
        groups = self._groups(channels)
        if channels % groups:
            raise InvalidOptionError(f"{channels} channels do not divide into {groups} groups")
        make = self.add_weight
        self.gamma = make(shape=(channels,), initializer=self.gamma_initializer, name="gamma") if self.scale else None
        self.beta = make(shape=(channels,), initializer=self.beta_initializer, name="beta") if self.center else None
        self.built = True

    def _groups(self, channels: int) -> int:
        return self.groups

    def call(self, inputs: Any, training: Any = None) -> Any:
        """The inputs, each group with mean 0 and variance 1, scaled and shifted by channel."""
        axis = self.channels_axis % inputs.ndim
        x = ops.moveaxis(inputs, axis, -1)
        shape, channels = x.shape, x.shape[-1]
        groups = self._groups(channels)
        parts = (channels // groups, groups) if self.strided else (groups, channels // groups)
        x = ops.reshape(ops.cast(x, "float32"), (*(-1 if n is None else n for n in shape[:-1]), *parts))
        inside = x.ndim - 2 if self.strided else x.ndim - 1
        dims = [*list(range(1, x.ndim - 2)), inside]
        mean, variance = ops.moments(x, axes=dims, keepdims=True)
        x = (x - mean) * ops.rsqrt(variance + self.epsilon)
        x = ops.reshape(x, (*(-1 if n is None else n for n in shape[:-1]), channels))
        x = x * ops.cast(self.gamma, "float32") if self.gamma is not None else x
        x = x + ops.cast(self.beta, "float32") if self.beta is not None else x
        return ops.moveaxis(ops.cast(x, self.compute_dtype), -1, axis)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape of the inputs."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Arguments of the layer."""
        config: dict[str, Any] = super().get_config()
        return config | {
            "groups": self.groups,
            "channels_axis": self.channels_axis,
            "center": self.center,
            "scale": self.scale,
            "epsilon": self.epsilon,
            "strided_channel_grouping": self.strided,
        }


class InstanceNormalization(GroupNormalization):
    """Norm of each channel of each sample; arguments as of :class:`GroupNormalization`, without groups."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.pop("groups", None)
        super().__init__(groups=0, **kwargs)

    def _groups(self, channels: int) -> int:
        return channels


class LayerNormalization(keras.layers.LayerNormalization):  # type: ignore[misc]
    """Norm over features, as in Keras."""


GroupNorm, InstanceNorm, LayerNorm = GroupNormalization, InstanceNormalization, LayerNormalization

# --- products, tables, dropout ----------------------------------------------------------------------------------------


class Embedding(keras.layers.Embedding):  # type: ignore[misc]
    """Rows of a table by number.

    Args:
        input_dim: Rows.
        output_dim: Width.
        embeddings_initializer: Of the table.
        serialization_factor: Parts of the table that are looked up one after the other; it divides the rows.
        **kwargs: As of Keras layers.

    Raises:
        InvalidOptionError: Masks, regularisers, constraints, or a factor that does not divide the rows.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Any = "uniform",
        serialization_factor: int = 1,
        **kwargs: Any,
    ) -> None:
        for name in ("mask_zero", "embeddings_regularizer", "activity_regularizer", "embeddings_constraint"):
            if kwargs.pop(name, None):
                raise InvalidOptionError(f"Embedding does not take {name}", remedy="keras.layers.Embedding")
        if serialization_factor < 1 or input_dim % serialization_factor:
            raise InvalidOptionError(f"a table of {input_dim} rows does not divide into {serialization_factor} parts")
        kwargs.pop("input_length", None)
        super().__init__(input_dim, output_dim, embeddings_initializer=embeddings_initializer, **kwargs)
        self.serialization_factor = serialization_factor

    def get_config(self) -> dict[str, Any]:
        """Arguments of the layer."""
        config: dict[str, Any] = super().get_config()
        return config | {"serialization_factor": self.serialization_factor}


class SerialDense(keras.layers.Dense):  # type: ignore[misc]
    """A dense layer whose product is computed in parts, one after the other.

    Args:
        units: Width of the result.
        serialization_factor: Number of parts.
        serialization_dimension: ``input_columns``, ``input_rows_kernel_columns`` or ``kernel_rows``: samples, features,
            or units.
        **kwargs: As of ``keras.layers.Dense``.

    Raises:
        InvalidOptionError: An unknown dimension.
    """

    def __init__(self, units: int, serialization_factor: int, serialization_dimension: str, **kwargs: Any) -> None:
        names = {
            "input_columns": "a_columns",
            "input_rows_kernel_columns": "a_rows_b_columns",
            "kernel_rows": "b_rows",
        }
        if serialization_dimension not in names:
            raise InvalidOptionError(
                f"serialization_dimension is one of {', '.join(names)}, not {serialization_dimension!r}"
            )
        super().__init__(units, **kwargs)
        self.serialization_factor, self.serialization_dimension = serialization_factor, serialization_dimension
        self._dimension = names[serialization_dimension]

    def call(self, inputs: Any, training: Any = None) -> Any:
        """The product, with bias and activation."""
        x = serialized_matmul(inputs, self.kernel, self.serialization_factor, self._dimension)
        x = x if self.bias is None else ops.add(x, self.bias)
        return x if self.activation is None else self.activation(x)

    def get_config(self) -> dict[str, Any]:
        """Arguments of the layer."""
        config: dict[str, Any] = super().get_config()
        return config | {
            "serialization_factor": self.serialization_factor,
            "serialization_dimension": self.serialization_dimension,
        }


class Dropout(keras.layers.Dropout):  # type: ignore[misc]
    """Dropout, as in Keras; ``ref`` is recorded alone."""

    def __init__(
        self, rate: float = 0.5, noise_shape: Any = None, seed: Any = None, ref: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(
            rate, noise_shape=noise_shape, seed=None if isinstance(seed, (list, tuple)) else seed, **kwargs
        )


# --- marks ------------------------------------------------------------------------------------------------------------


class RecomputationCheckpoint(keras.layers.Layer):  # type: ignore[misc]
    """Inputs that backward stages keep, where they compute others again."""

    def call(self, inputs: Any, training: Any = None) -> Any:
        """The inputs."""
        return recomputation_checkpoint(inputs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape of the inputs."""
        return input_shape


class AssumeEqualAcrossReplicas(keras.layers.Layer):  # type: ignore[misc]
    """Inputs that are alike on all replicas."""

    def __init__(self, inplace: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.inplace = inplace

    def call(self, inputs: Any, training: Any = None) -> Any:
        """The inputs."""
        return jax.tree.map(lambda x: x, inputs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """The shape of the inputs."""
        return input_shape


class CaptureActivationGradients(keras.layers.Wrapper):  # type: ignore[misc]
    """The layer inside; gradients of activations are not captured, those of weights are counted."""

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """The layer's result."""
        return self.layer(inputs, *args, **kwargs)


def _refused(name: str, remedy: str) -> type:
    def new(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
        raise UnsupportedOpError(f"{name} has no lowering", remedy=remedy)

    return type(name, (), {"__new__": new, "__doc__": f"Refused: use {remedy}."})


EffectiveTransformer = _refused("EffectiveTransformer", "keras.layers.MultiHeadAttention with a mask")
CTCInferenceLayer = _refused("CTCInferenceLayer", "keras.ops.ctc_decode on the host, on what predict() gives")
CTCPredictionsLayer = _refused("CTCPredictionsLayer", "keras.ops.ctc_decode on the host, on what predict() gives")

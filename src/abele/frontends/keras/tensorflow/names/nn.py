"""``tf.nn``: activations, losses, convolutions, pools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import keras

from ..dtypes import as_dtype
from ..randomness import draw_key
from ..tensors import narrowed, tensor_of
from .arrays import ARRAYS
from .math import MATH
from .table import NameTable, axes, static_dims

NN = NameTable()
NN.unary(
    relu=jax.nn.relu,
    relu6=jax.nn.relu6,
    selu=jax.nn.selu,
    sigmoid=jax.nn.sigmoid,
    tanh=jnp.tanh,
    softplus=jax.nn.softplus,
    softsign=jax.nn.soft_sign,
)
NN |= {name: MATH[name] for name in ("l2_normalize", "in_top_k", "top_k", "log_sigmoid")}
NN["zero_fraction"] = MATH["zero_fraction"]
NN |= {name: ARRAYS[name] for name in ("space_to_depth", "depth_to_space")}


@NN("leaky_relu")
def _leaky_relu(features: Any, alpha: float = 0.2, name: str | None = None) -> Any:
    return jax.nn.leaky_relu(tensor_of(features), alpha)


@NN("elu")
def _elu(features: Any, name: str | None = None) -> Any:
    return jax.nn.elu(tensor_of(features))


@NN("gelu")
def _gelu(features: Any, approximate: bool = False, name: str | None = None) -> Any:
    return jax.nn.gelu(tensor_of(features), approximate)


@NN("silu", "swish")
def _silu(features: Any, beta: float = 1.0, name: str | None = None) -> Any:
    tensor = tensor_of(features)
    return tensor * jax.nn.sigmoid(beta * tensor)


@NN("crelu")
def _crelu(features: Any, axis: int = -1, name: str | None = None) -> Any:
    tensor = tensor_of(features)
    return jnp.concatenate([jax.nn.relu(tensor), jax.nn.relu(-tensor)], axis)


@NN("softmax")
def _softmax(logits: Any, axis: Any = None, name: str | None = None) -> Any:
    return jax.nn.softmax(tensor_of(logits), -1 if axis is None else axes(axis))


@NN("log_softmax")
def _log_softmax(logits: Any, axis: Any = None, name: str | None = None) -> Any:
    return jax.nn.log_softmax(tensor_of(logits), -1 if axis is None else axes(axis))


@NN("l2_loss")
def _l2_loss(t: Any, name: str | None = None) -> Any:
    return jnp.sum(jnp.square(tensor_of(t))) / 2


@NN("bias_add")
def _bias_add(value: Any, bias: Any, data_format: str | None = None, name: str | None = None) -> Any:
    tensor, added = tensor_of(value), tensor_of(bias)
    channels_first = data_format is not None and data_format.upper().startswith("NC")
    return tensor + (added.reshape(-1, *[1] * (tensor.ndim - 2)) if channels_first else added)


@NN("dropout")
def _dropout(x: Any, rate: Any, noise_shape: Any = None, seed: Any = None, name: str | None = None) -> Any:
    tensor = tensor_of(x)
    shape = tensor.shape if noise_shape is None else static_dims(noise_shape)
    kept = jax.random.bernoulli(draw_key(seed), 1 - rate, shape)
    return jnp.where(kept, tensor / (1 - rate), jnp.zeros_like(tensor))


@NN("moments")
def _moments(x: Any, axes: Any, shift: Any = None, keepdims: bool = False, name: str | None = None) -> Any:
    tensor, along = tensor_of(x), static_dims(axes)
    return jnp.mean(tensor, along, keepdims=keepdims), jnp.var(tensor, along, keepdims=keepdims)


@NN("batch_normalization")
def _batch_normalization(
    x: Any, mean: Any, variance: Any, offset: Any, scale: Any, variance_epsilon: float, name: str | None = None
) -> Any:
    rate = jax.lax.rsqrt(tensor_of(variance) + variance_epsilon) * (1 if scale is None else tensor_of(scale))
    return (tensor_of(x) - tensor_of(mean)) * rate + (0 if offset is None else tensor_of(offset))


@NN("sigmoid_cross_entropy_with_logits")
def _sigmoid_cross_entropy(labels: Any = None, logits: Any = None, name: str | None = None) -> Any:
    scores, wanted = tensor_of(logits), tensor_of(labels)
    return jax.nn.relu(scores) - scores * wanted + jnp.log1p(jnp.exp(-jnp.abs(scores)))


@NN("softmax_cross_entropy_with_logits")
def _softmax_cross_entropy(labels: Any, logits: Any, axis: int = -1, name: str | None = None) -> Any:
    scores = tensor_of(logits)
    return -jnp.sum(tensor_of(labels).astype(scores.dtype) * jax.nn.log_softmax(scores, axis), axis)


@NN("sparse_softmax_cross_entropy_with_logits")
def _sparse_softmax_cross_entropy(labels: Any, logits: Any, name: str | None = None) -> Any:
    logarithms = jax.nn.log_softmax(tensor_of(logits))
    return -jnp.take_along_axis(logarithms, tensor_of(labels)[..., None].astype(jnp.int32), -1)[..., 0]


@NN("embedding_lookup")
def _embedding_lookup(params: Any, ids: Any, max_norm: Any = None, name: str | None = None) -> Any:
    return ARRAYS["gather"](params, ids)


def _channels(data_format: str | None) -> str:
    return "channels_first" if data_format is not None and data_format.upper().startswith("NC") else "channels_last"


def _inner(value: Any, data_format: str | None) -> Any:
    """Strides and dilations of the dims of images alone: TensorFlow's have one for batches and channels, too."""
    if not isinstance(value, list | tuple):
        return value
    found = static_dims(value)
    if len(found) == 1:
        return found[0]
    inner = found[2:] if _channels(data_format) == "channels_first" else found[1:-1]
    return found if len(found) == 2 and not inner else inner or found


def _convolution(
    input: Any,
    filters: Any,
    strides: Any = 1,
    padding: Any = "VALID",
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> Any:
    return keras.ops.conv(
        tensor_of(input),
        tensor_of(filters),
        strides=_inner(strides, data_format) or 1,
        padding=padding.lower(),
        data_format=_channels(data_format),
        dilation_rate=_inner(dilations, data_format) or 1,
    )


for _name in ("conv1d", "conv2d", "conv3d", "convolution"):
    NN(_name)(_convolution)


@NN("depthwise_conv2d")
def _depthwise_conv2d(
    input: Any,
    filter: Any,
    strides: Any,
    padding: str,
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> Any:
    return keras.ops.depthwise_conv(
        tensor_of(input),
        tensor_of(filter),
        strides=_inner(strides, data_format),
        padding=padding.lower(),
        data_format=_channels(data_format),
        dilation_rate=_inner(dilations, data_format) or 1,
    )


def _transposed(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: str = "SAME",
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> Any:
    return keras.ops.conv_transpose(
        tensor_of(input),
        tensor_of(filters),
        strides=_inner(strides, data_format),
        padding=padding.lower(),
        data_format=_channels(data_format),
    )


for _name in ("conv1d_transpose", "conv2d_transpose", "conv3d_transpose"):
    NN(_name)(_transposed)


def _pool(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(
        input: Any,
        ksize: Any,
        strides: Any = None,
        padding: str = "VALID",
        data_format: str | None = None,
        name: str | None = None,
    ) -> Any:
        return function(
            tensor_of(input),
            _inner(ksize, data_format),
            strides=_inner(strides, data_format),
            padding=padding.lower(),
            data_format=_channels(data_format),
        )

    return call


for _name in ("max_pool", "max_pool1d", "max_pool2d", "max_pool3d"):
    NN(_name)(_pool(keras.ops.max_pool))
for _name in ("avg_pool", "avg_pool1d", "avg_pool2d", "avg_pool3d"):
    NN(_name)(_pool(keras.ops.average_pool))


@NN("ctc_loss")
def _ctc_loss(
    labels: Any,
    logits: Any,
    label_length: Any,
    logit_length: Any,
    logits_time_major: bool = True,
    unique: Any = None,
    blank_index: int | None = None,
    name: str | None = None,
) -> Any:
    scores = tensor_of(logits)
    scores = jnp.swapaxes(scores, 0, 1) if logits_time_major else scores
    blank = blank_index or 0
    mask = blank if blank >= 0 else scores.shape[-1] + blank
    lengths = (tensor_of(label_length), tensor_of(logit_length))
    return keras.ops.ctc_loss(tensor_of(labels), scores, *lengths, mask_index=mask)


@NN("one_hot_argmax")
def _one_hot_argmax(logits: Any, dtype: Any = "float32") -> Any:
    scores = tensor_of(logits)
    return jax.nn.one_hot(jnp.argmax(scores, -1), scores.shape[-1], dtype=narrowed(as_dtype(dtype)))


@NN("scale_regularization_loss")
def _scale_regularization_loss(regularization_loss: Any) -> Any:
    return tensor_of(regularization_loss)


@NN("compute_average_loss")
def _compute_average_loss(
    per_example_loss: Any, sample_weight: Any = None, global_batch_size: Any = None, **_: Any
) -> Any:
    losses = tensor_of(per_example_loss)
    losses = losses if sample_weight is None else losses * tensor_of(sample_weight)
    return jnp.sum(losses) / (losses.shape[0] if global_batch_size is None else global_batch_size)


@NN("local_response_normalization", "lrn")
def _local_response_normalization(
    input: Any, depth_radius: int = 5, bias: float = 1, alpha: float = 1, beta: float = 0.5, name: str | None = None
) -> Any:
    x = tensor_of(input)
    window = (1,) * (x.ndim - 1) + (2 * depth_radius + 1,)
    sums = jax.lax.reduce_window(jnp.square(x), 0.0, jax.lax.add, window, (1,) * x.ndim, "SAME")
    return x / (bias + alpha * sums) ** beta


@NN("weighted_cross_entropy_with_logits")
def _weighted_cross_entropy(labels: Any, logits: Any, pos_weight: Any, name: str | None = None) -> Any:
    targets, scores = tensor_of(labels), tensor_of(logits)
    weight = 1 + (tensor_of(pos_weight) - 1) * targets
    return (1 - targets) * scores + weight * jax.nn.softplus(-scores)

"""Names of TensorFlow that make tensors and change their shape, order and type."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from abele.errors import TensorError

from ..dtypes import as_dtype
from ..shapes import TensorShape
from ..tensors import StringTensor, host_array, is_string, narrowed, numpy_of, tensor_of
from .table import NameTable, alike, axes, shape_vector, static_dims

ARRAYS = NameTable()
ARRAYS["shape"] = shape_vector
ARRAYS["newaxis"] = None


@ARRAYS("constant")
def _constant(value: Any, dtype: Any = None, shape: Any = None, name: str | None = None) -> Any:
    tensor = tensor_of(value, dtype)
    if shape is None:
        return tensor
    wanted = static_dims(shape)
    return jnp.full(wanted, tensor) if tensor.size == 1 else tensor.reshape(wanted)


@ARRAYS("convert_to_tensor")
def _convert_to_tensor(value: Any, dtype: Any = None, dtype_hint: Any = None, name: str | None = None) -> Any:
    return tensor_of(value, dtype)


@ARRAYS("cast")
def _cast(x: Any, dtype: Any, name: str | None = None) -> Any:
    if not hasattr(x, "dtype"):
        x = host_array(x)
    return tensor_of(x).astype(narrowed(as_dtype(dtype)))


@ARRAYS("saturate_cast")
def _saturate_cast(value: Any, dtype: Any, name: str | None = None) -> Any:
    wanted = as_dtype(dtype)
    return jnp.clip(tensor_of(value), wanted.min, wanted.max).astype(narrowed(wanted))


@ARRAYS("bitcast")
def _bitcast(input: Any, type: Any, name: str | None = None) -> Any:
    return jax.lax.bitcast_convert_type(tensor_of(input), as_dtype(type).dtype)


@ARRAYS("identity", "grad_pass_through")
def _identity(input: Any, name: str | None = None) -> Any:
    return tensor_of(input)


@ARRAYS("zeros")
def _zeros(shape: Any, dtype: Any = "float32", name: str | None = None) -> Any:
    return jnp.zeros(static_dims(shape), narrowed(as_dtype(dtype)))


@ARRAYS("ones")
def _ones(shape: Any, dtype: Any = "float32", name: str | None = None) -> Any:
    return jnp.ones(static_dims(shape), narrowed(as_dtype(dtype)))


@ARRAYS("zeros_like")
def _zeros_like(input: Any, dtype: Any = None, name: str | None = None) -> Any:
    return jnp.zeros_like(tensor_of(input), None if dtype is None else narrowed(as_dtype(dtype)))


@ARRAYS("ones_like")
def _ones_like(input: Any, dtype: Any = None, name: str | None = None) -> Any:
    return jnp.ones_like(tensor_of(input), None if dtype is None else narrowed(as_dtype(dtype)))


@ARRAYS("fill")
def _fill(dims: Any, value: Any, name: str | None = None) -> Any:
    return jnp.full(static_dims(dims), tensor_of(value))


@ARRAYS("eye")
def _eye(num_rows: Any, num_columns: Any = None, batch_shape: Any = None, dtype: Any = "float32", **_: Any) -> Any:
    made = jnp.eye(int(num_rows), None if num_columns is None else int(num_columns), dtype=narrowed(as_dtype(dtype)))
    return made if batch_shape is None else jnp.broadcast_to(made, (*static_dims(batch_shape), *made.shape))


@ARRAYS("range")
def _range(start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: str | None = None) -> Any:
    ends = [numpy_of(part) for part in ((0, start) if limit is None else (start, limit))]
    made = host_array(np.arange(ends[0], ends[1], numpy_of(delta)))
    wanted = "float32" if made.dtype.kind == "f" else "int32"
    kept = next((end.dtype for end in ends if hasattr(start, "dtype") or hasattr(limit, "dtype")), None)
    with jax.ensure_compile_time_eval():  # Known while a function is traced, too: loops over it may ask for values.
        return jnp.asarray(made, narrowed(as_dtype(dtype or kept or wanted)))


@ARRAYS("linspace")
def _linspace(start: Any, stop: Any, num: Any, name: str | None = None, axis: int = 0) -> Any:
    return jnp.linspace(tensor_of(start), tensor_of(stop), int(num), axis=axis)


@ARRAYS("one_hot")
def _one_hot(
    indices: Any,
    depth: Any,
    on_value: Any = None,
    off_value: Any = None,
    axis: int | None = None,
    dtype: Any = None,
    name: str | None = None,
) -> Any:
    hot = jax.nn.one_hot(tensor_of(indices), int(depth), axis=-1 if axis is None else axis, dtype=bool)
    given = next((value for value in (on_value, off_value) if hasattr(value, "dtype")), None)
    kind = narrowed(as_dtype(dtype or ("float32" if given is None else given.dtype)))
    return jnp.where(hot, jnp.asarray(1 if on_value is None else on_value, kind), jnp.asarray(off_value or 0, kind))


@ARRAYS("reshape")
def _reshape(tensor: Any, shape: Any, name: str | None = None) -> Any:
    if is_string(tensor):
        return StringTensor(np.asarray(tensor).reshape(static_dims(shape)))
    return tensor_of(tensor).reshape(static_dims(shape))


@ARRAYS("transpose")
def _transpose(a: Any, perm: Any = None, conjugate: bool = False, name: str | None = None) -> Any:
    return jnp.transpose(tensor_of(a), None if perm is None else static_dims(perm))


@ARRAYS("expand_dims")
def _expand_dims(input: Any, axis: Any, name: str | None = None) -> Any:
    return jnp.expand_dims(tensor_of(input), axes(axis))


@ARRAYS("squeeze")
def _squeeze(input: Any, axis: Any = None, name: str | None = None) -> Any:
    return jnp.squeeze(tensor_of(input), axes(axis))


@ARRAYS("concat")
def _concat(values: Any, axis: Any, name: str | None = None) -> Any:
    if any(map(is_string, values)):
        return StringTensor(np.concatenate([np.asarray(value) for value in values], int(axis)))
    if not isinstance(values, list | tuple):
        values = [values]
    return jnp.concatenate([tensor_of(value) for value in values], int(axis))


@ARRAYS("stack")
def _stack(values: Any, axis: int = 0, name: str | None = None) -> Any:
    if any(map(is_string, values)):
        return StringTensor(np.stack([np.asarray(StringTensor(value)) for value in values], axis))
    return jnp.stack([tensor_of(value) for value in values], axis)


ARRAYS["parallel_stack"] = ARRAYS["stack"]


@ARRAYS("unstack")
def _unstack(value: Any, num: int | None = None, axis: int = 0, name: str | None = None) -> Any:
    tensor = jnp.moveaxis(tensor_of(value), axis, 0)
    return [tensor[number] for number in range(tensor.shape[0])]


@ARRAYS("split")
def _split(value: Any, num_or_size_splits: Any, axis: Any = 0, num: Any = None, name: str | None = None) -> Any:
    tensor, sizes = tensor_of(value), np.asarray(num_or_size_splits).tolist()
    if isinstance(sizes, int):
        return jnp.split(tensor, sizes, int(axis))
    if -1 in sizes:
        sizes[sizes.index(-1)] = tensor.shape[int(axis)] - sum(sizes) - 1
    return jnp.split(tensor, np.cumsum(sizes)[:-1].tolist(), int(axis))


@ARRAYS("tile")
def _tile(input: Any, multiples: Any, name: str | None = None) -> Any:
    return jnp.tile(tensor_of(input), static_dims(multiples))


@ARRAYS("repeat")
def _repeat(input: Any, repeats: Any, axis: Any = None, name: str | None = None) -> Any:
    times = repeats if isinstance(repeats, int) else np.asarray(repeats)
    total = None if isinstance(times, int) else int(np.sum(times)) if times.ndim else None
    return jnp.repeat(tensor_of(input), times, axes(axis), total_repeat_length=total)


@ARRAYS("pad")
def _pad(tensor: Any, paddings: Any, mode: str = "CONSTANT", constant_values: Any = 0, name: str | None = None) -> Any:
    widths, kind = np.asarray(paddings).tolist(), mode.lower()
    values = {"constant_values": constant_values} if kind == "constant" else {}
    return jnp.pad(tensor_of(tensor), widths, mode=kind, **values)


@ARRAYS("reverse")
def _reverse(tensor: Any, axis: Any, name: str | None = None) -> Any:
    return jnp.flip(tensor_of(tensor), axes(axis))


@ARRAYS("roll")
def _roll(input: Any, shift: Any, axis: Any, name: str | None = None) -> Any:
    return jnp.roll(tensor_of(input), axes(shift), axes(axis))


@ARRAYS("broadcast_to")
def _broadcast_to(input: Any, shape: Any, name: str | None = None) -> Any:
    return jnp.broadcast_to(tensor_of(input), static_dims(shape))


ARRAYS["broadcast_static_shape"] = lambda x, y: TensorShape(np.broadcast_shapes(tuple(x), tuple(y)))


@ARRAYS("slice")
def _slice(input_: Any, begin: Any, size: Any, name: str | None = None) -> Any:
    tensor = tensor_of(input_)
    sizes = static_dims(size)
    lengths = [whole if length == -1 else length for length, whole in zip(sizes, tensor.shape, strict=True)]
    if isinstance(begin, jax.core.Tracer):
        return jax.lax.dynamic_slice(tensor, list(begin), lengths)
    starts = static_dims(begin)
    lengths = [
        whole - start if length == -1 else length
        for start, length, whole in zip(starts, sizes, tensor.shape, strict=True)
    ]
    return tensor[tuple(slice(start, start + length) for start, length in zip(starts, lengths, strict=True))]


@ARRAYS("strided_slice")
def _strided_slice(input_: Any, begin: Any, end: Any, strides: Any = None, **_: Any) -> Any:
    steps = static_dims(strides) if strides is not None else (1,) * len(static_dims(begin))
    return tensor_of(input_)[tuple(map(slice, static_dims(begin), static_dims(end), steps))]


@ARRAYS("gather")
def _gather(
    params: Any, indices: Any, validate_indices: Any = None, axis: Any = None, batch_dims: int = 0, name: Any = None
) -> Any:
    if is_string(params):
        return StringTensor(np.take(np.asarray(params), np.asarray(indices), axis or 0))
    tensor, places = tensor_of(params), tensor_of(indices)
    along = batch_dims if axis is None else int(axis)
    return _batched(lambda one, where: jnp.take(one, where, along - batch_dims, mode="fill"), batch_dims)(
        tensor, places
    )


def _batched(function: Any, batch_dims: int) -> Any:
    """A function of the rows of leading dims."""
    for _ in range(batch_dims):
        function = jax.vmap(function)
    return function


@ARRAYS("gather_nd")
def _gather_nd(params: Any, indices: Any, batch_dims: int = 0, name: str | None = None) -> Any:
    take = _batched(lambda one, where: one[tuple(jnp.moveaxis(where, -1, 0))], batch_dims)
    return take(tensor_of(params), tensor_of(indices))


@ARRAYS("scatter_nd")
def _scatter_nd(indices: Any, updates: Any, shape: Any, name: str | None = None) -> Any:
    values = tensor_of(updates)
    return jnp.zeros(static_dims(shape), values.dtype).at[tuple(jnp.moveaxis(tensor_of(indices), -1, 0))].add(values)


def _scattered(method: str) -> Any:
    def call(tensor: Any, indices: Any, updates: Any, name: str | None = None) -> Any:
        places = tuple(jnp.moveaxis(tensor_of(indices), -1, 0))
        return getattr(tensor_of(tensor).at[places], method)(tensor_of(updates))

    return call


for _name, _method in {"update": "set", "add": "add", "max": "max", "min": "min"}.items():
    ARRAYS(f"tensor_scatter_nd_{_name}")(_scattered(_method))


@ARRAYS("where")
def _where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Any:
    chosen = tensor_of(condition)
    if x is None and y is None:
        return jnp.stack(jnp.nonzero(chosen), -1)
    return jnp.where(chosen, *alike(x, y))


@ARRAYS("boolean_mask")
def _boolean_mask(tensor: Any, mask: Any, axis: Any = None, name: str | None = None) -> Any:
    values, kept = tensor_of(tensor), tensor_of(mask)
    return values[(slice(None),) * int(axis or 0) + (kept,)]


@ARRAYS("sequence_mask")
def _sequence_mask(lengths: Any, maxlen: Any = None, dtype: Any = "bool", name: str | None = None) -> Any:
    ends = tensor_of(lengths)
    most = int(ends.max()) if maxlen is None else int(maxlen)
    return (jnp.arange(most) < ends[..., None]).astype(narrowed(as_dtype(dtype)))


@ARRAYS("sort")
def _sort(values: Any, axis: int = -1, direction: str = "ASCENDING", name: str | None = None) -> Any:
    return jnp.sort(tensor_of(values), axis=axis, descending=direction == "DESCENDING")


@ARRAYS("argsort")
def _argsort(values: Any, axis: int = -1, direction: str = "ASCENDING", stable: bool = False, name: Any = None) -> Any:
    return jnp.argsort(tensor_of(values), axis=axis, descending=direction == "DESCENDING")


@ARRAYS("searchsorted")
def _searchsorted(sorted_sequence: Any, values: Any, side: str = "left", **_: Any) -> Any:
    return jnp.searchsorted(tensor_of(sorted_sequence), tensor_of(values), side=side).astype(jnp.int32)


@ARRAYS("unique")
def _unique(x: Any, out_idx: Any = "int32", name: str | None = None) -> Any:
    values = np.asarray(tensor_of(x))
    _, first, numbers = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    places = np.argsort(order)
    return tensor_of(values[first[order]]), tensor_of(places[numbers].astype(np.int32))


@ARRAYS("meshgrid")
def _meshgrid(*args: Any, indexing: str = "xy", name: str | None = None) -> Any:
    return jnp.meshgrid(*map(tensor_of, args), indexing=indexing)


@ARRAYS("rank")
def _rank(input: Any, name: str | None = None) -> Any:
    return np.int32(len(shape_vector(input)))


@ARRAYS("size")
def _size(input: Any, out_type: Any = "int32", name: str | None = None) -> Any:
    return jnp.asarray(int(np.prod(shape_vector(input))), narrowed(as_dtype(out_type)))


@ARRAYS("stop_gradient")
def _stop_gradient(input: Any, name: str | None = None) -> Any:
    return jax.lax.stop_gradient(tensor_of(input))


@ARRAYS("ensure_shape")
def _ensure_shape(x: Any, shape: Any, name: str | None = None) -> Any:
    if not TensorShape(shape).is_compatible_with(x.shape):
        raise TensorError(f"a tensor of shape {tuple(x.shape)} is not of {TensorShape(shape)}")
    return x


@ARRAYS("get_static_value")
def _get_static_value(tensor: Any, partial: bool = False) -> Any:
    return None if isinstance(tensor, jax.core.Tracer) else numpy_of(tensor)


@ARRAYS("space_to_depth")
def _space_to_depth(input: Any, block_size: int, data_format: str = "NHWC", name: str | None = None) -> Any:
    tensor = tensor_of(input)
    batch, rows, columns, channels = tensor.shape
    blocks = tensor.reshape(batch, rows // block_size, block_size, columns // block_size, block_size, channels)
    return blocks.transpose(0, 1, 3, 2, 4, 5).reshape(batch, rows // block_size, columns // block_size, -1)


@ARRAYS("depth_to_space")
def _depth_to_space(input: Any, block_size: int, data_format: str = "NHWC", name: str | None = None) -> Any:
    tensor = tensor_of(input)
    batch, rows, columns, channels = tensor.shape
    blocks = tensor.reshape(batch, rows, columns, block_size, block_size, channels // block_size**2)
    return blocks.transpose(0, 1, 3, 2, 4, 5).reshape(batch, rows * block_size, columns * block_size, -1)


@ARRAYS("unravel_index")
def _unravel_index(indices: Any, dims: Any, name: str | None = None) -> Any:
    return jnp.stack(jnp.unravel_index(tensor_of(indices), static_dims(dims)))


@ARRAYS("complex")
def _complex(real: Any, imag: Any, name: str | None = None) -> Any:
    return jax.lax.complex(tensor_of(real), tensor_of(imag))


@ARRAYS("reverse_sequence")
def _reverse_sequence(
    input: Any, seq_lengths: Any, seq_axis: int | None = None, batch_axis: int = 0, name: str | None = None
) -> Any:
    x = jnp.moveaxis(tensor_of(input), (batch_axis, seq_axis or 0), (0, 1))
    places, lengths = jnp.arange(x.shape[1]), tensor_of(seq_lengths)[:, None]
    taken = jnp.where(places < lengths, lengths - 1 - places, places)
    found = jnp.take_along_axis(x, taken.reshape(*taken.shape, *[1] * (x.ndim - 2)), 1)
    return jnp.moveaxis(found, (0, 1), (batch_axis, seq_axis or 0))

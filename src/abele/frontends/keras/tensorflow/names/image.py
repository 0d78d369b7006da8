"""``tf.image``: images resized, cropped, flipped and coloured, as pipelines of data do it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import keras

from ..dtypes import as_dtype
from ..randomness import draw_key
from ..tensors import narrowed, tensor_of
from .table import NameTable, static_dims

IMAGE = NameTable()


class ResizeMethod:
    """Names of ways to resize."""

    BILINEAR = "bilinear"
    NEAREST_NEIGHBOR = "nearest"
    BICUBIC = "bicubic"
    AREA = "area"
    LANCZOS3 = "lanczos3"
    LANCZOS5 = "lanczos5"
    GAUSSIAN = "gaussian"
    MITCHELLCUBIC = "mitchellcubic"


IMAGE["ResizeMethod"] = ResizeMethod


@IMAGE("resize")
def _resize(
    images: Any,
    size: Any,
    method: str = "bilinear",
    preserve_aspect_ratio: bool = False,
    antialias: bool = False,
    name: str | None = None,
) -> Any:
    tensor = tensor_of(images)
    rows, columns = static_dims(size)
    if preserve_aspect_ratio:
        scale = min(rows / tensor.shape[-3], columns / tensor.shape[-2])
        rows, columns = round(tensor.shape[-3] * scale), round(tensor.shape[-2] * scale)
    kept = tensor if method == "nearest" else tensor.astype(jnp.float32)
    made = keras.ops.image.resize(kept, (rows, columns), interpolation=method, antialias=antialias)
    return made.astype(tensor.dtype) if method == "nearest" else made


@IMAGE("resize_with_crop_or_pad")
def _resize_with_crop_or_pad(image: Any, target_height: int, target_width: int) -> Any:
    tensor = tensor_of(image)
    for dim, wanted in ((-3, int(target_height)), (-2, int(target_width))):
        size = tensor.shape[dim]
        if size > wanted:
            tensor = jax.lax.slice_in_dim(tensor, (size - wanted) // 2, (size - wanted) // 2 + wanted, axis=dim)
        widths = [(0, 0)] * tensor.ndim
        missing = max(wanted - size, 0)
        widths[dim] = (missing // 2, missing - missing // 2)
        tensor = jnp.pad(tensor, widths)
    return tensor


@IMAGE("crop_to_bounding_box")
def _crop(image: Any, offset_height: Any, offset_width: Any, target_height: int, target_width: int) -> Any:
    tensor = tensor_of(image)
    tensor = jax.lax.dynamic_slice_in_dim(tensor, offset_height, int(target_height), tensor.ndim - 3)
    return jax.lax.dynamic_slice_in_dim(tensor, offset_width, int(target_width), tensor.ndim - 2)


@IMAGE("pad_to_bounding_box")
def _pad_to(image: Any, offset_height: int, offset_width: int, target_height: int, target_width: int) -> Any:
    tensor = tensor_of(image)
    below = (offset_height, target_height - tensor.shape[-3] - offset_height)
    right = (offset_width, target_width - tensor.shape[-2] - offset_width)
    return jnp.pad(tensor, [(0, 0)] * (tensor.ndim - 3) + [below, right, (0, 0)])


@IMAGE("central_crop")
def _central_crop(image: Any, central_fraction: float) -> Any:
    tensor = tensor_of(image)
    starts = [int((size - size * central_fraction) / 2) for size in tensor.shape[-3:-1]]
    ends = [size - start for size, start in zip(tensor.shape[-3:-1], starts, strict=True)]
    return tensor[..., starts[0] : ends[0], starts[1] : ends[1], :]


@IMAGE("random_crop")
def _random_crop(value: Any, size: Any, seed: Any = None, name: str | None = None) -> Any:
    tensor, sizes = tensor_of(value), static_dims(size)
    room = jnp.asarray([whole - part + 1 for whole, part in zip(tensor.shape, sizes, strict=True)])
    starts = jax.random.randint(draw_key(seed), (len(sizes),), 0, room)
    return jax.lax.dynamic_slice(tensor, list(starts), sizes)


@IMAGE("flip_left_right")
def _flip_left_right(image: Any) -> Any:
    return jnp.flip(tensor_of(image), -2)


@IMAGE("flip_up_down")
def _flip_up_down(image: Any) -> Any:
    return jnp.flip(tensor_of(image), -3)


@IMAGE("transpose")
def _transpose(image: Any, name: str | None = None) -> Any:
    return jnp.swapaxes(tensor_of(image), -2, -3)


@IMAGE("rot90")
def _rot90(image: Any, k: int = 1, name: str | None = None) -> Any:
    return jnp.rot90(tensor_of(image), int(k), (-3, -2))


def _randomly_flipped(image: Any, seed: Any, dim: int) -> Any:
    tensor = tensor_of(image)
    shape = (*tensor.shape[:-3], 1, 1, 1) if tensor.ndim > 3 else ()
    return jnp.where(jax.random.bernoulli(draw_key(seed), 0.5, shape), jnp.flip(tensor, dim), tensor)


@IMAGE("random_flip_left_right")
def _random_flip_left_right(image: Any, seed: Any = None) -> Any:
    return _randomly_flipped(image, seed, -2)


@IMAGE("random_flip_up_down")
def _random_flip_up_down(image: Any, seed: Any = None) -> Any:
    return _randomly_flipped(image, seed, -3)


@IMAGE("convert_image_dtype")
def _convert_image_dtype(image: Any, dtype: Any, saturate: bool = False, name: str | None = None) -> Any:
    tensor, wanted, given = tensor_of(image), as_dtype(dtype), as_dtype(tensor_of(image).dtype)
    if wanted == given:
        return tensor
    if wanted.is_floating:
        return tensor.astype(narrowed(wanted)) / (given.max if given.is_integer else 1)
    if given.is_floating:
        scaled = tensor * (wanted.max + 0.5)
        return jnp.clip(scaled, wanted.min, wanted.max).astype(narrowed(wanted))
    return (tensor // (given.max // wanted.max)).astype(narrowed(wanted))


def _as_float(function: Any) -> Any:
    """Let a function of real numbers take images of whole ones, from 0 to the largest."""

    def call(image: Any, *args: Any, **kwargs: Any) -> Any:
        kind = tensor_of(image).dtype
        return _convert_image_dtype(function(_convert_image_dtype(image, "float32"), *args, **kwargs), kind)

    return call


@IMAGE("adjust_brightness")
@_as_float
def _adjust_brightness(image: Any, delta: Any) -> Any:
    return tensor_of(image) + delta


@IMAGE("adjust_contrast")
@_as_float
def _adjust_contrast(images: Any, contrast_factor: Any) -> Any:
    tensor = tensor_of(images)
    mean = jnp.mean(tensor, (-3, -2), keepdims=True)
    return (tensor - mean) * contrast_factor + mean


@IMAGE("adjust_saturation")
@_as_float
def _adjust_saturation(image: Any, saturation_factor: Any, name: str | None = None) -> Any:
    hsv = keras.ops.image.rgb_to_hsv(tensor_of(image))
    hsv = hsv.at[..., 1].set(jnp.clip(hsv[..., 1] * saturation_factor, 0, 1))
    return keras.ops.image.hsv_to_rgb(hsv)


@IMAGE("adjust_hue")
@_as_float
def _adjust_hue(image: Any, delta: Any, name: str | None = None) -> Any:
    hsv = keras.ops.image.rgb_to_hsv(tensor_of(image))
    return keras.ops.image.hsv_to_rgb(hsv.at[..., 0].set((hsv[..., 0] + delta) % 1))


def _drawn(low: Any, high: Any, seed: Any) -> Any:
    return jax.random.uniform(draw_key(seed), (), jnp.float32, low, high)


@IMAGE("random_brightness")
def _random_brightness(image: Any, max_delta: float, seed: Any = None) -> Any:
    return _adjust_brightness(image, _drawn(-max_delta, max_delta, seed))


@IMAGE("random_contrast")
def _random_contrast(image: Any, lower: float, upper: float, seed: Any = None) -> Any:
    return _adjust_contrast(image, _drawn(lower, upper, seed))


@IMAGE("random_saturation")
def _random_saturation(image: Any, lower: float, upper: float, seed: Any = None) -> Any:
    return _adjust_saturation(image, _drawn(lower, upper, seed))


@IMAGE("random_hue")
def _random_hue(image: Any, max_delta: float, seed: Any = None) -> Any:
    return _adjust_hue(image, _drawn(-max_delta, max_delta, seed))


@IMAGE("per_image_standardization")
def _per_image_standardization(image: Any) -> Any:
    tensor = tensor_of(image).astype(jnp.float32)
    size = tensor.shape[-1] * tensor.shape[-2] * tensor.shape[-3]
    mean = jnp.mean(tensor, (-3, -2, -1), keepdims=True)
    deviation = jnp.std(tensor, (-3, -2, -1), keepdims=True)
    return (tensor - mean) / jnp.maximum(deviation, 1 / jnp.sqrt(float(size)))


@IMAGE("rgb_to_grayscale")
def _rgb_to_grayscale(images: Any, name: str | None = None) -> Any:
    tensor = tensor_of(images)
    grey = jnp.sum(tensor * jnp.asarray([0.2989, 0.587, 0.114], jnp.float32), -1, keepdims=True)
    return grey.astype(tensor.dtype)


@IMAGE("grayscale_to_rgb")
def _grayscale_to_rgb(images: Any, name: str | None = None) -> Any:
    return jnp.repeat(tensor_of(images), 3, -1)


IMAGE["rgb_to_hsv"] = keras.ops.image.rgb_to_hsv
IMAGE["hsv_to_rgb"] = keras.ops.image.hsv_to_rgb


@IMAGE("psnr")
def _psnr(a: Any, b: Any, max_val: Any, name: str | None = None) -> Any:
    first, second = (tensor_of(part).astype(jnp.float32) for part in (a, b))
    error = jnp.mean(jnp.square(first - second), axis=(-3, -2, -1))
    return 20 * jnp.log10(jnp.float32(max_val)) - 10 * jnp.log10(error)


@IMAGE("adjust_gamma")
def _adjust_gamma(image: Any, gamma: float = 1, gain: float = 1) -> Any:
    return gain * tensor_of(image) ** gamma

"""Models out of files, in the type asked for or from codes of fewer bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from abele import poptorch
from abele.arrays import Array
from abele.errors import FileFormatError, InvalidOptionError, TensorError, nearest
from abele.llm.config import ModelConfig
from abele.llm.loading.names import TensorOrigin, expert_names
from abele.llm.loading.sources import ModelSource, source_of
from abele.llm.tokenizer import Tokenizer
from abele.llm.tokenizer_files import read_tokenizer
from abele.weights import SCHEMES, QuantisedMatrix, WeightFile
from abele.weights import quantise as quantised_by

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
STORED = "stored"
"""Codes and scales as they lie in the file."""


class WeightNamesError(FileFormatError):
    """Tensors missing from a file, in it without use, or of other shapes than the model's."""


@dataclass(frozen=True)
class LoadedModel:
    """A model and what reads and writes its text.

    Attributes:
        model: The module, in evaluation mode.
        tokenizer: Its tokenizer; None where the files have none.
        config: Its sizes and variants.
    """

    model: nn.Module
    tokenizer: Tokenizer | None
    config: ModelConfig

    def __iter__(self) -> Iterator[Any]:
        return iter((self.model, self.tokenizer))


def load(
    path: str | Path, *, dtype: str | torch.dtype = "float32", quantise: str | None = None, tokenizer: bool = True
) -> LoadedModel:
    """A model and its tokenizer.

    Args:
        path: A GGUF file, or a folder as Hugging Face writes them.
        dtype: Type of all weights that are not quantised: float32, float16 or bfloat16.
        quantise: Scheme of linear layers' weights, as ``int8`` or ``int4-64``; ``stored`` keeps codes and scales of
            Q8_0, Q4_0 and Q4_1 as they are. Embeddings stay dense, but for one that the head shares.
        tokenizer: False to leave the tokenizer out.

    Raises:
        FileFormatError: Files are missing or damaged.
        ModelConfigError: The model is of a kind that no module has.
        WeightNamesError: The file's tensors are not the model's.
        InvalidOptionError: There is no such type or scheme.
        TensorError: Rows that are no whole groups of the scheme: those of 576 weights in groups of 128.
        TokenizerError: The tokenizer is of a kind that is not known.
    """
    kind = DTYPES.get(dtype) if isinstance(dtype, str) else dtype
    if kind is None or kind not in DTYPES.values():
        raise InvalidOptionError(f"weights cannot be of type {dtype}", remedy=f"one of {', '.join(DTYPES)}")
    if quantise is not None and quantise not in (*SCHEMES, STORED):
        raise InvalidOptionError(f"there is no scheme {quantise!r}", remedy=f"one of {', '.join((*SCHEMES, STORED))}")
    source = source_of(path)
    with _Uninitialised():
        model = source.module()
    _fill(model, source, kind, quantise)
    found = _tokenizer(Path(path), source.weights) if tokenizer else None
    return LoadedModel(model.eval(), found, source.config)


def _tokenizer(path: Path, weights: WeightFile) -> Tokenizer | None:
    if weights.format == "gguf":
        return read_tokenizer(weights) if "tokenizer.ggml.model" in weights.metadata else None
    folder = path if path.is_dir() else path.parent
    return read_tokenizer(folder) if (folder / "tokenizer.json").is_file() else None


class _Uninitialised(TorchFunctionMode):
    """Modules are made without the random numbers that weights would start with."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__module__", None) == "torch.nn.init":
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))


def _fill(model: nn.Module, source: ModelSource, dtype: torch.dtype, quantise: str | None) -> None:
    """Weights of the file put into the model."""
    model.to(dtype)
    shared = getattr(source.config, "tied_head", False)
    used: set[str] = set()
    missing: list[str] = []
    quantised: dict[str, QuantisedMatrix] = {}
    for name, parameter in list(model.named_parameters()):
        origin, names = _found(source, name)
        if origin is None:
            missing.append(names[0])
            continue
        used.update(names)
        matrix = _matrix(model, name, source.weights, (origin, names), quantise, source.config)
        if matrix is None:
            array = _dense(source.weights, origin, names, source.config)
            _check_shape(source, name, names[0], array.shape, tuple(parameter.shape))
            with torch.no_grad():
                parameter.copy_(torch.from_numpy(array))
        else:
            _check_shape(source, name, names[0], matrix.shape, tuple(parameter.shape))
            quantised[name.removesuffix(".weight")] = matrix
    _check_names(source, used, missing, shared)
    if quantise is not None and shared and isinstance(model.get_submodule("unembedding"), nn.Linear):
        stored = source.weights[_found(source, "embedding.weight")[1][0]]
        codes = stored.quantised() if quantise == STORED else _coded("unembedding.weight", stored.read(), quantise)
        if codes is not None:
            quantised["unembedding"] = codes
    for place, matrix in quantised.items():
        _put(model, place, matrix)
    if shared and "unembedding" in quantised:
        # One table for both, as it was before.
        head = model.get_submodule("unembedding")
        assert isinstance(head, poptorch.QuantisedLinear)
        model.set_submodule("embedding", poptorch.QuantisedEmbedding.tied_to(head, dtype))


def _found(source: ModelSource, parameter: str) -> tuple[TensorOrigin | None, list[str]]:
    """Origin of a parameter, and the tensors' names in this file."""
    origin = source.naming.origin(parameter)
    if origin is None:
        return None, [parameter]
    names = expert_names(origin.name, source.config)
    for found in (names, [name.removeprefix(source.naming.prefix) for name in names]):
        if all(name in source.weights for name in found):
            return origin, found
    return None, [next(name for name in names if name not in source.weights)]


def _dense(weights: WeightFile, origin: TensorOrigin, names: Sequence[str], config: ModelConfig) -> Array:
    arrays = [_turned(weights[name].read(), origin, config) for name in names]
    return arrays[0] if "@" not in origin.name and len(arrays) == 1 else np.stack(arrays)


def _turned(array: Array, origin: TensorOrigin, config: ModelConfig) -> Array:
    if origin.transposed and array.ndim > 1:
        array = array.swapaxes(-1, -2)
    if origin.rows is not None:
        rows = origin.rows(config)
        if rows.size and rows.max() >= len(array):
            raise WeightNamesError(f"{origin.name} has {len(array):,} rows, {rows.max() + 1:,} are needed")
        array = array[rows]
    return np.ascontiguousarray(array + np.float32(origin.plus) if origin.plus else array)


def _matrix(
    model: nn.Module,
    name: str,
    weights: WeightFile,
    found: tuple[TensorOrigin, list[str]],
    quantise: str | None,
    config: ModelConfig,
) -> QuantisedMatrix | None:
    """The quantised weight of a linear layer; None where it is to be dense."""
    origin, names = found
    layer = model.get_submodule(name.rpartition(".")[0])
    if quantise is None or not isinstance(layer, nn.Linear) or not name.endswith(".weight"):
        return None
    if quantise != STORED:
        return _coded(name, _dense(weights, origin, names, config), quantise)
    matrix = weights[names[0]].quantised() if len(names) == 1 and not origin.transposed and not origin.plus else None
    return matrix if matrix is None or origin.rows is None else matrix.rows(origin.rows(config))


def _coded(name: str, array: Array, scheme: str) -> QuantisedMatrix:
    try:
        return quantised_by(array, scheme)
    except TensorError as error:
        raise TensorError(
            f"{name} cannot be quantised by {scheme!r}: {error.message}", because=error.because, remedy=error.remedy
        ) from error


def _put(model: nn.Module, place: str, matrix: QuantisedMatrix) -> None:
    """A quantised layer in the place of a linear one, with its bias."""
    parent, _, leaf = place.rpartition(".")
    layer = model.get_submodule(place)
    assert isinstance(layer, nn.Linear)
    setattr(model.get_submodule(parent), leaf, poptorch.QuantisedLinear.from_matrix(matrix, layer.bias))


def _check_shape(source: ModelSource, ours: str, theirs: str, got: tuple[int, ...], want: tuple[int, ...]) -> None:
    if tuple(got) != want:
        raise WeightNamesError(
            f"{source.weights.path}: tensor {theirs!r} gives {ours!r} the shape {tuple(got)}, the configuration {want}"
        )


def _check_names(source: ModelSource, used: set[str], missing: list[str], shared: bool) -> None:
    weights = source.weights
    if missing:
        left = [name for name in weights if name not in used]
        close = nearest(missing[0], left)
        raise WeightNamesError(
            f"{weights.path}: {len(missing)} tensors of a {source.family} are missing, first {missing[0]!r}",
            remedy=f"the file has {close!r}, which the model has not" if close else None,
        )
    ignored = source.naming.ignored
    heads = {"lm_head.weight", "output.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}
    extra = [name for name in weights if name not in used and not ignored.fullmatch(name)]
    extra = [name for name in extra if not (name in heads and (shared or "embed_tokens" in name))]
    if extra:
        close = nearest(extra[0], used)
        raise WeightNamesError(
            f"{weights.path}: {len(extra)} tensors belong to nothing in a {source.family}, first {extra[0]!r}",
            because="the configuration leaves out what they are for",
            remedy=f"its name is like that of {close!r}" if close else None,
        )

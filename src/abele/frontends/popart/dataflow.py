"""Anchors of a step, and arrays of its inputs and results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from abele.arrays import Array
from abele.frontends.popart.errors import popart_exception
from abele.frontends.popart.tensor_info import TensorInfo


class AnchorReturnType:
    """Choice of the micro-batches of a tensor that come back: ``All``, ``EveryN`` with a period, ``Final`` or ``Sum``.

    Raises:
        popart_exception: Another word, or a period where there is none, or none where there is one.
    """

    def __init__(self, artString: str, returnPeriod: int | None = None, *settings: Any) -> None:
        kinds = {"ALL": "All", "EVERYN": "EveryN", "FINAL": "Final", "SUM": "Sum"}
        kind = str(artString).upper()
        if kind not in kinds:
            raise popart_exception(f"Invalid anchor return type ID supplied: {artString}")
        if kind == "EVERYN":
            if returnPeriod is None:
                raise popart_exception("Must specify return period with option 'EVERYN'")
            if int(returnPeriod) < 1:
                raise popart_exception("Anchor return period must be greater than zero")
        elif isinstance(returnPeriod, int) and not isinstance(returnPeriod, bool) and type(returnPeriod) is int:
            raise popart_exception("A return period should not be supplied for this anchor return type")
        self._kind, self._period = kinds[kind], int(returnPeriod) if kind == "EVERYN" else 1  # type: ignore[arg-type]

    def id(self) -> str:
        """The word."""
        return self._kind

    def rp(self) -> int:
        """The period."""
        return self._period

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnchorReturnType) and (self._kind, self._period) == (other._kind, other._period)

    def __hash__(self) -> int:
        return hash((self._kind, self._period))

    def __repr__(self) -> str:
        return f"AnchorReturnType({self._kind!r})"


Anchors = Mapping[str, AnchorReturnType] | Iterable[str]


class DataFlow:
    """Batches of a step, and the tensors of it that come back.

    Args:
        batchesPerStep: Weight updates of a step, or batches of inference.
        anchorTensors: Tensors that come back, and which micro-batches' of each; or their names alone.
        anchorReturnType: Choice of micro-batches, where names alone are given.
    """

    def __init__(
        self,
        batchesPerStep: int = 1,
        anchorTensors: Anchors | None = None,
        anchorReturnType: AnchorReturnType | str = "All",
        *settings: Any,
    ) -> None:
        if int(batchesPerStep) < 1:
            raise popart_exception(f"batchesPerStep is a positive number, got {batchesPerStep}")
        self._batches = int(batchesPerStep)
        given = anchorTensors if anchorTensors is not None else {}
        if isinstance(given, Mapping):
            self._anchors = {name: _kind(kind) for name, kind in given.items()}
        else:
            self._anchors = dict.fromkeys(given, _kind(anchorReturnType))

    @property
    def kinds(self) -> dict[str, AnchorReturnType]:
        """Choice of micro-batches by anchor."""
        return dict(self._anchors)

    def isAnchored(self, id: str) -> bool:
        """True if a tensor comes back."""
        return id in self._anchors

    def anchors(self) -> list[str]:
        """Names of the tensors that come back."""
        return list(self._anchors)

    def nAnchors(self) -> int:
        """Number of tensors that come back."""
        return len(self._anchors)

    def art(self, id: str) -> AnchorReturnType:
        """Choice of micro-batches of a tensor."""
        return self._anchors[id]

    def batchesPerStep(self) -> int:
        """Batches of a step."""
        return self._batches

    def getAnchorReturnTypeMap(self) -> dict[str, AnchorReturnType]:
        """Choice of micro-batches by tensor."""
        return self.kinds

    def numOutFetches(self) -> int:
        """Number of tensors that come back."""
        return self.nAnchors()

    def setBatchesPerStep(self, batchesPerStep: int) -> None:
        """Let a step have another number of batches."""
        self._batches = int(batchesPerStep)

    def shape(self, name: str, b: int, a: int, r: int, shape: Iterable[int]) -> tuple[int, ...]:
        """Shape of what comes back of a tensor: dimensions of 1 are dropped before the tensor's own.

        Raises:
            RuntimeError: A period that the batches of a step do not divide into.
        """
        kind = self._anchors[name]
        if kind.id() == "EveryN" and b % kind.rp():
            raise RuntimeError(
                f"Invalid anchor period {kind.rp()} of {name!r}: it does not divide the {b} batches of a step"
            )
        outer = {"All": (b, a, r), "EveryN": (b // kind.rp(), a, r), "Final": (r,), "Sum": (r,)}[kind.id()]
        return (*(n for n in outer if n > 1), *shape)

    def chosen(self, name: str, values: Array, b: int, a: int, r: int) -> Array:
        """Values of a tensor that come back, of those of all micro-batches [b · a · r, …]."""
        kind, own = self._anchors[name], values.shape[1:]
        wide = values.reshape(b, a, r, *own)
        match kind.id():
            case "Final":
                picked = wide[-1, -1]
            case "Sum":
                # In f32 where it is narrower: a sum over many micro-batches would lose digits.
                picked = wide.sum(axis=(0, 1), dtype=np.float32 if wide.dtype == np.float16 else wide.dtype)
                picked = picked.astype(wide.dtype)
            case "EveryN":
                picked = wide[kind.rp() - 1 :: kind.rp()]
            case _:
                picked = wide
        return np.asarray(picked).reshape(self.shape(name, b, a, r, own))


def _kind(given: AnchorReturnType | str) -> AnchorReturnType:
    return given if isinstance(given, AnchorReturnType) else AnchorReturnType(given)


class PyStepIO:
    """Inputs of a step and arrays for its results, by name.

    Raises:
        popart_exception: An array that does not lie in one stretch.
    """

    def __init__(self, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        self.inputs = {name: _contiguous(name, array) for name, array in inputs.items()}
        self.outputs = dict(outputs)
        self.checks = True

    def enableRuntimeAsserts(self, enable: bool) -> None:
        """Turn checks of arrays against the model on or off."""
        self.checks = bool(enable)


def _contiguous(name: str, given: Any) -> Array:
    array = np.asarray(given)
    if not array.flags.c_contiguous:
        raise popart_exception(f"Input to PyStepIO {name!r} is not c-contiguous", remedy="np.ascontiguousarray(array)")
    return array


class PyStepIOCallback:
    """Functions that give inputs of micro-batches and take results, one at a time.

    Args:
        input_callback: Takes a name and whether it is asked ahead; gives the array of a micro-batch, or None.
        input_complete_callback: Told that the array of an input was read.
        output_callback: Takes a name; gives an array for a result.
        output_complete_callback: Told that a result was written.
    """

    def __init__(
        self,
        input_callback: Callable[[str, bool], Any],
        input_complete_callback: Callable[[str], None],
        output_callback: Callable[[str], Any],
        output_complete_callback: Callable[[str], None],
    ) -> None:
        self.give, self.given = input_callback, input_complete_callback
        self.take, self.taken = output_callback, output_complete_callback


class PyWeightsIO:
    """Arrays of weights by name."""

    def __init__(self, weights: Mapping[str, Any]) -> None:
        self.weights = dict(weights)


class InputShapeInfo:
    """Shapes of inputs that a model leaves open."""

    def __init__(self) -> None:
        self.infos: dict[str, TensorInfo] = {}

    def add(self, id: str, info: TensorInfo) -> None:
        """Say the shape of an input."""
        self.infos[id] = info

    def get(self, id: str) -> TensorInfo:
        """The shape of an input."""
        return self.infos[id]

    def has(self, id: str) -> bool:
        """True if an input's shape was said."""
        return id in self.infos

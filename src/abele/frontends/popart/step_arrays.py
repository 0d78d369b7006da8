"""Arrays of a step: inputs cut into micro-batches, and results in the shapes that a data flow says.

A step of b updates, each of a micro-batches on each of r replicas, takes b · a · r micro-batches of each input one
after the other; of an input that replicas share b · a. A value after an update counts for all its a micro-batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from abele.arrays import Array
from abele.frontends.popart.anchors import GRADIENT_PREFIX
from abele.frontends.popart.dataflow import DataFlow, PyStepIO, PyStepIOCallback
from abele.frontends.popart.errors import popart_exception, popart_runtime_error
from abele.frontends.popart.reading import SessionModel
from abele.frontends.popart.wide_integers import narrow
from abele.network import Value

StepIO = PyStepIO | PyStepIOCallback


class StepArrays:
    """Arrays of the steps of a session.

    Args:
        model: The model.
        flow: Batches of a step and its anchors.
        sizes: Updates of a step, micro-batches of each, replicas.
        mean: True if updates use the mean of gradients.
    """

    def __init__(self, model: SessionModel, flow: DataFlow, sizes: tuple[int, int, int], *, mean: bool) -> None:
        self._model, self._flow, self._sizes, self._mean = model, flow, sizes, mean

    # --- before the step ----------------------------------------------------------------------------------------------

    def inputs(self, stepio: StepIO) -> list[Array]:
        """An array for each input of the network, of all micro-batches of a step.

        Raises:
            popart_exception: A name is no input, or an input is not there.
            popart_runtime_error: An array has another number of elements.
        """
        return self._called(stepio) if isinstance(stepio, PyStepIOCallback) else self._given(stepio)

    def _given(self, stepio: PyStepIO) -> list[Array]:
        inputs = self._model.inputs
        for name in stepio.inputs:
            if name not in inputs and name not in self._model.infos:
                raise popart_exception(
                    f"The tensor '{name}' has been provided as one of the inputs to the stepIO, but it is not "
                    "registered as one of the inputs to the model. Please check your stepIO inputs."
                )
        b, a, r = self._sizes
        arrays = []
        for name, value in inputs.items():
            if name not in stepio.inputs and name in self._model.unread:
                arrays.append(_nothing(value, b * a * r))
                continue
            if name not in stepio.inputs:
                raise popart_exception(f"No input for the tensor '{name}' was provided to the stepIO")
            array, copies = stepio.inputs[name], r if name in self._model.broadcast else 1
            count = b * a * r // copies
            if array.size != count * value.size and not (stepio.checks is False and array.size > count * value.size):
                raise popart_runtime_error(
                    f"Unexpected number of input elements for Tensor {name}. Expected {count * value.size}, but "
                    f"received {array.size}"
                )
            array = narrow(name, array.reshape(-1)[: count * value.size])
            if copies > 1:
                array = np.repeat(array.reshape(b * a, value.size), copies, axis=0)
            arrays.append(_in_a_row(array, value, b * a * r))
        return arrays

    def _called(self, stepio: PyStepIOCallback) -> list[Array]:
        b, a, r = self._sizes
        count, arrays = b * a * r, []
        for name, value in self._model.inputs.items():
            if name in self._model.unread:
                arrays.append(_nothing(value, count))
                continue
            rows: list[Array] = []
            for number in range(count):
                if number % r and name in self._model.broadcast:
                    rows.append(rows[-1])
                    continue
                given = stepio.give(name, False)
                if given is None:
                    raise popart_runtime_error(f"the input callback gave nothing for the tensor {name}")
                array = narrow(name, np.array(given))
                if array.size != value.size:
                    raise popart_runtime_error(
                        f"Unexpected number of input elements for Tensor {name}. Expected {value.size}, but received "
                        f"{array.size}"
                    )
                rows.append(array.reshape(value.shape))
                stepio.given(name)
            arrays.append(_in_a_row(np.stack(rows), value, count))
        return arrays

    # --- after the step -----------------------------------------------------------------------------------------------

    def results(self) -> dict[str, Array]:
        """Arrays for what comes back of a step, by name."""
        model = self._model
        return {
            name: np.zeros(self._flow.shape(name, *self._sizes, model.shapes[name]), model.types[name])
            for name in self._flow.anchors()
        }

    def give(self, stepio: StepIO, made: Mapping[str, Array]) -> None:
        """Hand results to a step's arrays or functions.

        Raises:
            popart_runtime_error: An array has another number of elements.
        """
        b, a, r = self._sizes
        for name, values in made.items():
            own = self._model.shapes[name]
            rows = self._of_micro_batches(np.asarray(values), own)
            if isinstance(stepio, PyStepIOCallback):
                for row in self._flow.chosen(name, rows, b, a, r).reshape(-1, *own):
                    target = stepio.take(name)
                    np.copyto(target, row.reshape(np.shape(target)))
                    stepio.taken(name)
                continue
            if name not in stepio.outputs:
                continue
            picked = self._flow.chosen(name, rows, b, a, r)
            target = stepio.outputs[name]
            if np.size(target) != picked.size:
                raise popart_runtime_error(
                    f"Unexpected number of output elements for Tensor {name}. Expected {picked.size}, but received "
                    f"{np.size(target)}"
                )
            np.copyto(target, picked.reshape(np.shape(target)), casting="unsafe")

    def gradients(self, name: str, sums: Array) -> Array:
        """Gradients of an anchor in each micro-batch, of the sums over those of an update so far."""
        b, a, r = self._sizes
        if a == 1 or not name.startswith(GRADIENT_PREFIX):
            return sums
        wide = sums.reshape(b, a, r, *self._model.shapes[name])
        share = a * r if self._mean else 1
        before = np.concatenate([np.zeros_like(wide[:, :1]), wide[:, :-1]], axis=1)
        return np.asarray((wide - before) * share, sums.dtype)

    def _of_micro_batches(self, values: Array, own: Sequence[int]) -> Array:
        """Values in all micro-batches [b · a · r, …], of those, of updates [b · r, …], or of one value for all."""
        b, a, r = self._sizes
        rows = values.reshape(-1, *own)
        if len(rows) == b * r and a > 1:
            return np.repeat(rows.reshape(b, 1, r, *own), a, axis=1).reshape(-1, *own)
        return np.repeat(rows, b * a * r // len(rows), axis=0)


def _nothing(value: Value, count: int) -> Array:
    """Zeros for an input that nothing reads."""
    return _in_a_row(np.zeros(count * value.size, value.dtype.np), value, count)


def _in_a_row(array: Array, value: Value, count: int) -> Array:
    """Micro-batches one after the other along the first dimension."""
    if not value.shape:
        return array.reshape((count,) if count > 1 else ())
    return array.reshape((count * value.shape[0], *value.shape[1:]))

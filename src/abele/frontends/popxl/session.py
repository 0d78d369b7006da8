"""Sessions: a program on the device, with streams as NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np

from abele.arrays import Array
from abele.errors import ElementRangeError, SessionError
from abele.frontends.popxl.errors import GraphArgumentError, GraphTypeError
from abele.frontends.popxl.functional import functional
from abele.frontends.popxl.graph import Ir
from abele.frontends.popxl.streams import DeviceToHostStream, HostToDeviceStream
from abele.frontends.popxl.tensors import Constant, Tensor, Variable
from abele.report import Report
from abele.session import Session as NetworkSession
from abele.session import Settings, SharedArrays, compile_network

Inputs = Mapping[HostToDeviceStream, Any]
Outputs = Mapping[DeviceToHostStream, Array]


class NotAttachedError(SessionError, ValueError):
    """A run of a session outside of its context."""


class Session:
    """A program that is compiled and can be run.

    Args:
        ir: The program, which does not change from now on.
        device_desc: Any word: all mean the machine that Abele models.
        weights_to_host_on_exit: Bring variables to the host at the end of the context.

    Attributes:
        ir: The program.
        network: It as a network.
    """

    def __init__(self, ir: Ir, device_desc: Any = "cpu", weights_to_host_on_exit: bool = True, **settings: Any) -> None:
        if not isinstance(ir, Ir):
            raise GraphTypeError(f"a session takes an Ir, not {ir!r}")
        if isinstance(device_desc, str) and device_desc not in ("cpu", "ipu_model", "ipu_hw"):
            raise GraphArgumentError(f"Device description {device_desc!r} is not one of cpu, ipu_model, ipu_hw")
        self.ir = ir
        ir.is_frozen = True
        self._made = functional(ir)
        self.network = self._made.network
        self._to_host = weights_to_host_on_exit
        self._depth = 0
        partials = "f16" if ir.options.partialsTypeMatMuls == "half" else "f32"
        chosen = Settings(
            name="popxl",
            shared_functions=True,
            partials=partials,
            stochastic_rounding=ir.options.enableStochasticRounding,
        )
        from dataclasses import replace

        compiled = compile_network(self.network, settings=replace(chosen, **settings))
        weights = SharedArrays({t.id: _for_device(t.data, t) for t in self._made.variables})
        self._session = NetworkSession(compiled, weights=weights)

    # --- contexts

    @property
    def is_attached(self) -> bool:
        """True inside of its context."""
        return self._depth > 0

    def __enter__(self) -> Self:
        if not self._depth:
            self.weights_from_host()
        self._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if not self._depth and self._to_host:
            self.weights_to_host()

    def weights_from_host(self) -> None:
        """Bring the variables of the host to the device."""
        for tensor in self._made.variables:
            self._session.weights[tensor.id] = _for_device(tensor.data, tensor)

    def weights_to_host(self) -> None:
        """Bring the variables of the device to the host."""
        for tensor in self._made.variables:
            tensor.data = self._device_data(tensor)

    def _device_data(self, tensor: Variable) -> Array:
        return np.array(self._session.weights[tensor.id], dtype=tensor.dtype.as_numpy()).reshape(tensor.shape)

    # --- running

    def expected_inputs(self) -> list[HostToDeviceStream]:
        """Streams that a run takes."""
        return list(self._made.inputs)

    def _shape(self, stream: HostToDeviceStream | DeviceToHostStream) -> tuple[int, ...]:
        entries = self.ir.num_host_transfers
        return ((entries,) if entries > 1 else ()) + stream.shape

    def create_host_outputs(self) -> dict[DeviceToHostStream, Array]:
        """An array for each stream to the host."""
        return {s: np.zeros(self._shape(s), s.dtype.as_numpy()) for s in self._made.outputs}

    def run(self, inputs: Inputs | None = None, downcast_inputs: bool = True) -> dict[DeviceToHostStream, Array]:
        """Run the program once.

        Args:
            inputs: For each stream that is loaded its entries, [num_host_transfers, …]; without that dimension if it
                is 1.
            downcast_inputs: Convert arrays of 64 bits.

        Returns:
            For each stream that is stored its entries.

        Raises:
            NotAttachedError: Outside of the context.
            GraphArgumentError: Streams that are missing or not loaded, or arrays of another shape.
            GraphTypeError: Arrays of another type.
        """
        outputs = self.create_host_outputs()
        self.run_with_outputs(inputs, outputs, downcast_inputs)
        return outputs

    def run_with_outputs(
        self, inputs: Inputs | None = None, outputs: Outputs | None = None, downcast_inputs: bool = True
    ) -> None:
        """As :meth:`run`, into arrays that are there."""
        if not self.is_attached:
            raise NotAttachedError(
                "Must be attached to device before calling run.", remedy="with popxl.Session(ir) as session: …"
            )
        given = dict(inputs or {})
        missing = [s for s in self._made.inputs if s not in given]
        if missing:
            raise GraphArgumentError(f"Missing inputs: {', '.join(map(repr, missing))}")
        extra = [s for s in given if s not in self._made.inputs]
        if extra:
            raise GraphArgumentError(f"Unexpected inputs: {', '.join(map(repr, extra))}, which the program never loads")
        arrays = [self._sent(s, given[s], downcast_inputs) for s in self._made.inputs]
        kept = dict(outputs or {})
        for stream, array in kept.items():
            if stream not in self._made.outputs:
                raise GraphArgumentError(f"Unexpected output: {stream!r}, which the program never stores")
            if array.shape != self._shape(stream):
                raise GraphArgumentError(f"The array for {stream!r} is {array.shape}, not {self._shape(stream)}")
        if not (self.network.outputs or self.network.updates):
            return
        made = self._session.run(arrays).outputs
        for stream, array in zip(self._made.outputs, made, strict=True):
            if stream in kept:
                kept[stream][...] = np.asarray(array).reshape(kept[stream].shape)

    def _sent(self, stream: HostToDeviceStream, given: Any, downcast: bool) -> Array:
        array = given.detach().cpu().numpy() if hasattr(given, "detach") else np.asarray(given)
        expected, shape = stream.dtype.as_numpy(), self._shape(stream)
        narrow = {"float64": "float32", "int64": "int32", "uint64": "uint32"}.get(array.dtype.name)
        if downcast and array.dtype != expected and narrow == expected.name:
            array = array.astype(expected)
        if array.dtype != expected:
            raise GraphTypeError(f"The array for {stream!r} is {array.dtype.name}, not {expected.name}")
        # Dimensions of one entry and one replica may be there.
        entries = self.ir.num_host_transfers
        if array.shape not in (shape, (entries, *stream.shape), (entries, 1, *stream.shape)):
            raise GraphArgumentError(f"The array for {stream!r} is {array.shape}, not {shape}")
        return array.reshape(entries, *stream.shape).astype(stream.dtype.element.np, copy=False)

    # --- variables

    def get_tensor_data(self, tensor: Tensor) -> Array:
        """Data of a variable or constant: on the device inside of the context, else on the host.

        Raises:
            GraphTypeError: It is neither.
        """
        if isinstance(tensor, Variable):
            return self._device_data(tensor) if self.is_attached else tensor.data.copy()
        if isinstance(tensor, Constant):
            return tensor.data.copy()
        raise GraphTypeError(f"{tensor!r} is neither a Variable nor a Constant", remedy="ops.host_store it")

    def get_tensors_data(self, tensors: Iterable[Tensor]) -> dict[Tensor, Array]:
        """Data of variables and constants."""
        return {t: self.get_tensor_data(t) for t in tensors}

    def write_variable_data(self, tensor: Tensor, data: Any) -> None:
        """Let a variable hold something else.

        Raises:
            GraphTypeError: It is no variable, or the data has another type.
            GraphArgumentError: The data has another shape.
        """
        if not isinstance(tensor, Variable):
            raise GraphTypeError(f"{tensor!r} is not a Variable")
        array = data.detach().cpu().numpy() if hasattr(data, "detach") else np.asarray(data)
        if array.dtype != tensor.dtype.as_numpy():
            raise GraphTypeError(f"The data for {tensor!r} is {array.dtype.name}, not {tensor.dtype.name}")
        if array.shape != tensor.shape:
            raise GraphArgumentError(f"The data for {tensor!r} has shape {array.shape}, not {tensor.shape}")
        tensor.data = array.copy()
        if self.is_attached:
            self._session.weights[tensor.id] = _for_device(tensor.data, tensor)

    def write_variables_data(self, tensors: Mapping[Tensor, Any]) -> None:
        """Let variables hold something else."""
        for tensor, data in tensors.items():
            self.write_variable_data(tensor, data)

    @property
    def report(self) -> Report:
        """Cost of the program on the machine."""
        return self._session.report


def _for_device(data: Array, tensor: Variable) -> Array:
    """Data in the type of the device.

    Raises:
        ElementRangeError: An integer that its 32 bits do not hold.
    """
    made = data.astype(tensor.dtype.element.np)
    if tensor.dtype.is_int and (made != data).any():
        raise ElementRangeError(
            f"{tensor!r} has {data[made != data].flat[0]}, which does not fit in the device's {tensor.dtype.element}",
            remedy="keep integers within ±2³¹",
        )
    return made


__all__ = ["NotAttachedError", "Session"]

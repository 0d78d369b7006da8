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
from abele.frontends.popxl.graph import Graph
from abele.frontends.popxl.ir import Ir
from abele.frontends.popxl.remote import RemoteBuffer, RemoteVariable
from abele.frontends.popxl.streams import DeviceToHostStream, HostToDeviceStream
from abele.frontends.popxl.tensors import Constant, Tensor, Variable
from abele.poplibs.gcl import CommGroup
from abele.report import Report
from abele.session import Schedule, Settings, SharedArray, SharedArrays, compile_network
from abele.session import Session as NetworkSession
from abele.words import counted

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
        self._ipus = ipus_of(ir.main_graph)
        chosen = Settings(
            name="popxl",
            ipus_per_replica=self._ipus,
            shared_functions=True,
            partials=partials,
            stochastic_rounding=ir.options.enableStochasticRounding,
        )
        from dataclasses import replace

        variables, buffers = self._made.variables, self._made.buffers
        groups = [(t.id, t.rows.groups) for t in variables if t.rows.groups is not None]
        # Replicas store what they have to rows of their own.
        groups += [(b.state_name, CommGroup.none()) for b in buffers if ir.replication_factor > 1]
        schedule = Schedule(replicas=ir.replication_factor, ranks=ir.ranks, own_values=tuple(groups))
        self._check_device(device_desc)
        compiled = compile_network(self.network, schedule, settings=replace(chosen, **settings))
        for variable in self._variables():
            if variable.dtype.is_int:
                _of_device(variable.data, variable)
        # Data comes with the first context.
        self._session = NetworkSession(compiled, weights=SharedArrays())

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
        weights = self._session.weights
        for tensor in self._made.variables:
            weights[tensor.id] = _for_device(tensor.data, tensor)
        for buffer in self._made.buffers:
            name = buffer.state_name
            if name not in weights:  # Rows may take gigabytes, and are made for the session alone.
                weights[name] = SharedArray.owning(self._rows(buffer))
            elif buffer.variables:  # What else the program stored there stays.
                weights[name] = self._rows(buffer, weights[name])

    def _rows(
        self, buffer: RemoteBuffer, before: Array | None = None, variables: Iterable[RemoteVariable] | None = None
    ) -> Array:
        """Rows of a buffer with some of its variables, by default all; of several replicas, [replicas, rows, …]."""
        replicas = self.ir.replication_factor
        chosen = buffer.variables if variables is None else variables
        return buffer.rows(((v.offset, v.rows.spread(_of_device(v.data, v), replicas)) for v in chosen), before)

    def _variables(self) -> list[Variable]:
        """All that the device has."""
        return [*self._made.variables, *(v for b in self._made.buffers for v in b.variables)]

    def weights_to_host(self) -> None:
        """Bring the variables of the device to the host, but for those of files that may only be read."""
        if not self._session.weights:  # No context yet.
            return
        tables = {b: self._session.weights[b.state_name] for b in self._made.buffers if b.variables}
        for tensor in self._variables():
            if tensor.follows_device:
                tensor.set_data(self._device_data(tensor, tables))

    def _device_data(self, tensor: Variable, tables: Mapping[RemoteBuffer, Array] | None = None) -> Array:
        if not isinstance(tensor, RemoteVariable):
            found = tensor.dtype.host_array(self._session.weights[tensor.id])
            return tensor.rows.from_rows(found)
        if tensor.buffer not in self._made.buffers:  # Nothing brings it to the chip.
            return tensor.data.copy()
        rows = self._session.weights[tensor.buffer.state_name] if tables is None else tables[tensor.buffer]
        each = rows.reshape(self.ir.replication_factor, tensor.buffer.entries, *tensor.shape)
        return tensor.rows.collected(tensor.dtype.host_array(each[:, tensor.offset]))

    @property
    def num_ipus(self) -> int:
        """IPUs of a device for the program: a power of 2, of those of all replicas of this process."""
        needed = self._ipus * self.ir.instance_replication_factor
        return 1 << (needed - 1).bit_length()

    def _check_device(self, device: Any) -> None:
        """Raise if a device is given that has too few IPUs."""
        there = getattr(device, "numIpus", None)
        if isinstance(there, int) and there < self.num_ipus:
            raise GraphArgumentError(
                f"the device has {counted(there, 'IPU')}, the program takes {self.num_ipus}",
                because=f"{counted(self.ir.instance_replication_factor, 'replica')} of {counted(self._ipus, 'IPU')}",
            )

    # --- running

    def expected_inputs(self) -> list[HostToDeviceStream]:
        """Streams that a run takes."""
        return list(self._made.inputs)

    def _shape(self, stream: HostToDeviceStream | DeviceToHostStream) -> tuple[int, ...]:
        counts = (self.ir.num_host_transfers, self.ir.instance_replication_factor)
        return (*(n for n in counts if n > 1), *stream.shape)

    def create_host_outputs(self) -> dict[DeviceToHostStream, Array]:
        """An array for each stream to the host."""
        return {s: np.zeros(self._shape(s), s.dtype.as_numpy()) for s in self._made.outputs}

    def run(self, inputs: Inputs | None = None, downcast_inputs: bool = True) -> dict[DeviceToHostStream, Array]:
        """Run the program once.

        Args:
            inputs: For each stream that is loaded its entries, [num_host_transfers, replicas of this process, …];
                without dimensions of 1.
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
        counts = (self.ir.instance_replication_factor, self.ir.num_host_transfers)
        # What prints gave comes after the streams.
        for stream, array in zip(self._made.outputs, made, strict=False):
            if stream in kept:
                rows = stream.dtype.host_array(array).reshape(*counts, *stream.shape)
                kept[stream][...] = rows.swapaxes(0, 1).reshape(kept[stream].shape)

    def _sent(self, stream: HostToDeviceStream, given: Any, downcast: bool) -> Array:
        array = given.detach().cpu().numpy() if hasattr(given, "detach") else np.asarray(given)
        expected, shape = stream.dtype.as_numpy(), self._shape(stream)
        narrow = {"float64": "float32", "int64": "int32", "uint64": "uint32"}.get(array.dtype.name)
        if downcast and array.dtype != expected and narrow == expected.name:
            array = array.astype(expected)
        if array.dtype != expected:
            raise GraphTypeError(f"The array for {stream!r} is {array.dtype.name}, not {expected.name}")
        # Dimensions of one entry and one replica may be there.
        entries, replicas = self.ir.num_host_transfers, self.ir.instance_replication_factor
        taken = {shape, (entries, replicas, *stream.shape)} | ({(entries, *stream.shape)} if replicas == 1 else set())
        if array.shape not in taken:
            because = f"[{entries} transfers, {replicas} replicas, …] without dimensions of 1"
            raise GraphArgumentError(f"The array for {stream!r} is {array.shape}, not {shape}", because=because)
        rows = array.reshape(entries, replicas, *stream.shape).swapaxes(0, 1)
        # The session takes what one replica loads as one micro-batch, one replica after the other.
        return stream.dtype.device_array(rows.reshape(replicas * entries, *stream.shape))

    # --- variables

    def get_tensor_data(self, tensor: Tensor) -> Array:
        """Data of a variable or constant: on the device inside of the context, else on the host.

        Raises:
            GraphTypeError: It is neither.
        """
        if isinstance(tensor, Variable):
            return self._device_data(tensor) if self.is_attached else np.array(tensor.data)
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
        if not tensor.rows.fits(array.shape):
            raise GraphArgumentError(f"The data for {tensor!r} has shape {array.shape}, not {tensor.shape_on_host}")
        if not tensor.follows_device:
            raise GraphArgumentError(f"{tensor!r} is a file that may only be read", remedy="np.memmap(…, mode='r+')")
        tensor.set_data(tensor.rows.retrieved(array).copy())
        if not self.is_attached:
            return
        if isinstance(tensor, RemoteVariable):
            if tensor.buffer in self._made.buffers:
                name = tensor.buffer.state_name
                self._session.weights[name] = self._rows(tensor.buffer, self._session.weights[name], [tensor])
            return
        self._session.weights[tensor.id] = _for_device(tensor.data, tensor)

    def write_variables_data(self, tensors: Mapping[Tensor, Any]) -> None:
        """Let variables hold something else."""
        for tensor, data in tensors.items():
            self.write_variable_data(tensor, data)

    @property
    def report(self) -> Report:
        """Cost of the program on the machine."""
        return self._session.report


def ipus_of(graph: Graph) -> int:
    """Number of IPUs of a graph and of called ones: one more than the highest."""
    return 1 + max((t.ipu for one in graph.reached for t in one.tensors), default=0)


def _for_device(data: Array, tensor: Variable) -> Array:
    """Rows for the session in the type of the device."""
    return tensor.rows.to_rows(_of_device(data, tensor))


def _of_device(data: Array, tensor: Variable) -> Array:
    """Data in the type of the device.

    Raises:
        ElementRangeError: An integer that its 32 bits do not hold.
    """
    made = tensor.dtype.device_array(data)
    if tensor.dtype.is_int and made is not data and (made != data).any():
        raise ElementRangeError(
            f"{tensor!r} has {data[made != data].flat[0]}, which does not fit in the device's {tensor.dtype.element}",
            remedy="keep integers within ±2³¹",
        )
    return made


__all__ = ["NotAttachedError", "Session"]

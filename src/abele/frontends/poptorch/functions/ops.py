"""PopTorch's own functions for ``forward``. Outside of a recorded model they compute what they can on the host."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from abele.frontends.poptorch.capture import host_words
from abele.frontends.poptorch.capture.recording import is_training
from abele.frontends.poptorch.capture.state_changes import current_state
from abele.frontends.poptorch.enums import MatMulSerializationMode, OverlapMode
from abele.frontends.poptorch.errors import CheckError, Error
from abele.frontends.poptorch.program.overlap import CURRENT
from abele.frontends.poptorch.program.recording import isRunningOnIpu
from abele.frontends.poptorch.values import structures
from abele.frontends.poptorch.values.tensors import from_array, to_array
from abele.network.ops.host_call import HOST_BODIES

# --- control flow -----------------------------------------------------------------------------------------------------


def for_loop(count: int, body: Callable[..., Any], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors after ``count`` trips of ``body`` in a loop on the device.

    Args:
        count: Trips; a plain number.
        body: Takes as many tensors as there are inputs; gives as many of the same shapes and types. It may read other
            tensors, and may change its arguments in place, which nobody else sees. Buffers of the model that it
            changes go from trip to trip.
        inputs: Before the first trip.

    Raises:
        ValueError: The inputs are no list of tensors.
        Error: The model is trained; the body gives something else than it takes.
    """
    _check_list("for_loop", "inputs", inputs)
    if not isRunningOnIpu():
        values = [t.clone() for t in inputs]
        for _ in range(count):
            values = _listed(body(*values))
        return values
    if is_training():
        raise Error("poptorch.for_loop() is only supported in inference")
    buffers = [_buffers()]
    with host_words.body() as number:
        parameters = torch.ops.abele.enter(inputs)
        # Read elsewhere than in results, arguments that the body changes in place would change here too.
        results = _listed(body(*(t.clone() for t in parameters)))
        buffers.append(_buffers())
    _check_same("poptorch.for_loop", parameters, results)
    made: list[torch.Tensor] = torch.ops.abele.for_loop(number, int(count), inputs, parameters, results, *buffers)
    return made


def _buffers() -> list[torch.Tensor]:
    """The buffers of the model that is recorded as they are here, after assignments to them."""
    state = current_state()
    if state is None:
        return []
    state.settle()
    return state.copies()


def cond(
    condition: torch.Tensor,
    then_body: Callable[..., Any],
    then_inps: list[torch.Tensor],
    else_body: Callable[..., Any],
    else_inps: list[torch.Tensor],
) -> list[torch.Tensor]:
    """The results of one of two bodies, chosen on the device.

    Args:
        condition: One element; true for ``then_body``.
        then_body: Takes ``then_inps``.
        then_inps: Tensors; what the body changes in place, nobody else sees.
        else_body: Takes ``else_inps``; gives tensors of the same shapes and types as the other.
        else_inps: Tensors.

    Raises:
        ValueError: The inputs are no lists of tensors.
        Error: The model is trained; the bodies give different things.
    """
    _check_list("cond", "then_inps", then_inps)
    _check_list("cond", "else_inps", else_inps)
    if not isRunningOnIpu():
        body, chosen = (then_body, then_inps) if bool(condition) else (else_body, else_inps)
        return _listed(body(*(t.clone() for t in chosen)))
    if is_training():
        raise Error("poptorch.cond() is only supported in inference")
    numbers: list[int] = []
    results: list[list[torch.Tensor]] = []
    buffers = [_buffers()]
    for body, given in ((then_body, then_inps), (else_body, else_inps)):
        with host_words.body() as number:
            results.append([t.clone() for t in _listed(body(*(t.clone() for t in given)))])
            buffers.append(_buffers())
        numbers.append(number)
    _check_same("poptorch.cond", *results)
    made: list[torch.Tensor] = torch.ops.abele.branch(numbers, condition, *results, *buffers)
    return made


def _listed(results: Any) -> list[torch.Tensor]:
    return list(results) if isinstance(results, (list, tuple)) else [results]


def _check_list(function: str, name: str, inputs: Any) -> None:
    start = f"poptorch.{function} expects input tensors ({name}) to be a list of tensors."
    if not isinstance(inputs, list):
        raise ValueError(f"{start} (Object is not list)")
    for index, tensor in enumerate(inputs):
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(f"{start} (Object contained in list at index {index} is not torch.tensor)")


def _check_same(function: str, first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> None:
    if len(first) != len(second):
        raise Error(f"{function}: {len(second)} results, {len(first)} are wanted")
    for number, (one, other) in enumerate(zip(first, second, strict=True)):
        if not isinstance(other, torch.Tensor) or (one.shape, one.dtype) != (other.shape, other.dtype):
            shown = f"{other.dtype} of {list(other.shape)}" if isinstance(other, torch.Tensor) else repr(other)
            raise Error(f"{function}: result {number} is {shown}, {one.dtype} of {list(one.shape)} is wanted")


# --- the host ---------------------------------------------------------------------------------------------------------


@torch.library.custom_op("abele::host_function", mutates_args=())
def _host_function(name: str, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    made = HOST_BODIES[name](*(to_array(t) for t in inputs))
    return [from_array(a) for a in (made if isinstance(made, tuple) else (made,))]


@_host_function.register_fake
def _(name: str, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [inputs[0].new_empty(shape, dtype=dtype) for shape, dtype in _HOST_RESULTS[name]]


_HOST_RESULTS: dict[str, list[tuple[torch.Size, torch.dtype]]] = {}
_host_numbers = itertools.count()


class CPU:
    """A function that runs on the host in the middle of a model on the device, for inference.

    Args:
        layer_to_call: The function or module; takes and gives tensors.
        ID: Its name.
    """

    def __init__(self, layer_to_call: Callable[..., Any], ID: str) -> None:
        if not callable(layer_to_call):
            raise Error(f"poptorch.CPU takes a function, got {layer_to_call!r}")
        self._layer_to_call = layer_to_call
        self._ID = ID

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Results of the function; while a model is recorded, it is called once on zeros to learn their shapes.

        Raises:
            Error: The model is trained.
        """
        return self.execute(*args, **kwargs)

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        if not isRunningOnIpu():
            return self._layer_to_call(*args, **kwargs)
        if is_training():
            raise Error("poptorch.CPU is only supported in inference", remedy="use poptorch.inferenceModel")
        tensors = [t for t in structures.leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        shapes = [(t.shape, t.dtype) for t in tensors]
        if not tensors:
            raise Error("a poptorch.CPU function takes at least one tensor")
        name = f"{self._ID}.{next(_host_numbers)}".replace("/", ".").replace("#", ".")

        def call(*values: torch.Tensor) -> Any:
            entering = iter(values)
            given, named = structures.map_tensors(lambda _: next(entering), (args, kwargs))
            with torch.no_grad():
                return self._layer_to_call(*given, **named)

        with _disable_current_modes():
            example = call(*(torch.zeros(shape, dtype=dtype) for shape, dtype in shapes))
        results = [t for t in structures.leaves(example) if isinstance(t, torch.Tensor)]
        _HOST_RESULTS[name] = [(t.shape, t.dtype) for t in results]

        def body(*arrays: Any) -> Any:
            values = (from_array(a).to(dtype).reshape(shape) for a, (shape, dtype) in zip(arrays, shapes, strict=True))
            made = [t for t in structures.leaves(call(*values)) if isinstance(t, torch.Tensor)]
            return tuple(map(_narrowed, made))

        HOST_BODIES[name] = body
        leaving = iter(torch.ops.abele.host_function(name, tensors))
        return structures.map_tensors(lambda _: next(leaving), example)


def _narrowed(tensor: torch.Tensor) -> Any:
    """The elements of a tensor in the types of the device."""
    narrow = {torch.float64: torch.float32, torch.int64: torch.int32}
    return to_array(tensor.to(narrow.get(tensor.dtype, tensor.dtype)))


def ipu_print_tensor(
    tensor: torch.Tensor,
    title: str = "",
    print_gradient: bool = True,
    summarise_threshold: int = 1000,
    edge_items: int = 3,
    max_line_width: int = 80,
    digits: int = 4,
    float_format: str = "auto",
    separator: str = ", ",
    open_bracket: str = "(",
    close_bracket: str = ")",
) -> torch.Tensor:
    """``tensor``, printed to the standard error whenever the device computes it; use what this returns, or nothing is
    printed. Its gradient has the title ``Gradient___`` and that of the tensor.

    Args:
        tensor: Tensor to print.
        title: Before it.
        print_gradient: True to print its gradient too, when training.
        summarise_threshold: More elements than this are shown by their edges; 0 for all elements.
        edge_items: Elements shown at each edge.
        max_line_width: Characters of a line; 0 for lines of any length.
        digits: Digits of a float, without its exponent, and the width that elements are aligned to; 0 for neither.
        float_format: ``fixed`` (-100.00), ``scientific`` (-1.123e+10), ``auto`` for one of both by the elements, or
            ``none`` for each element as short as it is.
        separator: Between elements.
        open_bracket: Before each dimension.
        close_bracket: After each dimension.
    """
    if float_format not in ("auto", "fixed", "scientific", "none"):
        raise Error(f"Unknown float_format {float_format!r}", remedy='"auto", "fixed", "scientific" or "none"')
    if not isRunningOnIpu():
        return tensor
    layout = {
        "summarise_threshold": summarise_threshold,
        "edge_items": edge_items,
        "max_line_width": max_line_width,
        "digits": digits,
        "float_format": float_format,
        "separator": separator,
        "open_bracket": open_bracket,
        "close_bracket": close_bracket,
    }
    printed: torch.Tensor = torch.ops.abele.print_tensor(tensor, title, print_gradient, json.dumps(layout))
    return printed


# --- marks ------------------------------------------------------------------------------------------------------------


def nop(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor``; nothing that compiling does looks through it."""
    return _kept(tensor)


def recomputationCheckpoint(*tensors: Any) -> Any:
    """The tensors, in tuples and lists as given: what the backward pass keeps, and does not compute again."""
    made = tuple(structures.map_tensors(_kept, tensor) for tensor in tensors)
    return made[0] if len(made) == 1 else made


def _kept(tensor: torch.Tensor) -> torch.Tensor:
    kept: torch.Tensor = torch.ops.abele.keep(tensor) if isRunningOnIpu() else tensor
    return kept


def set_overlap_for_input(input_tensors: Any, mode: OverlapMode) -> Any:
    """The tensors, nested as given.

    With ``opts.TensorLocations.numIOTiles`` the copies of all inputs and outputs run beside the tiles that compute;
    what is asked for here has to go with that.

    Raises:
        Error: No such mode; a tensor that is no input of the model; a copy that is to overlap, and no IO tiles.
    """
    return _overlapped("set_overlap_for_input", input_tensors, mode)


def set_overlap_for_output(output_tensors: Any, mode: OverlapMode) -> Any:
    """As :func:`set_overlap_for_input`, for results of the model."""
    return _overlapped("set_overlap_for_output", output_tensors, mode)


def _overlapped(function: str, tensors: Any, mode: OverlapMode) -> Any:
    if not isinstance(mode, OverlapMode):
        raise Error(f"{function} takes a poptorch.OverlapMode, got {mode!r}")
    overlap = CURRENT.get()
    if overlap is not None:
        overlap.ask(function, [leaf for leaf in structures.leaves(tensors) if isinstance(leaf, torch.Tensor)], mode)
    return tensors


# --- products ---------------------------------------------------------------------------------------------------------


def serializedMatMul(
    lhs: torch.Tensor,
    rhs: torch.Tensor,
    mode: MatMulSerializationMode,
    factor: int = 0,
    keep_precision: bool = False,
) -> torch.Tensor:
    """``lhs`` times ``rhs`` in ``factor`` products one after the other, which need less memory at a time.

    Args:
        lhs: […, n, k].
        rhs: [k, m] or […, k, m].
        mode: Dimension that is split: of ``lhs`` the rows n (``InputChannels``), the k that is summed over
            (``ReducingDim``), or of ``rhs`` the columns m (``OutputChannels``).
        factor: Number of parts, which divides that dimension.
        keep_precision: True to add parts of f16 products in f32; only for ``ReducingDim``.

    Raises:
        CheckError: The mode, or a factor that does not divide.
    """
    if not isinstance(mode, MatMulSerializationMode):
        raise CheckError(f"serializedMatMul takes a poptorch.MatMulSerializationMode, got {mode!r}")
    if mode == MatMulSerializationMode.Disabled:
        return torch.matmul(lhs, rhs)
    dim, size = {
        MatMulSerializationMode.InputChannels: ("rows", lhs.shape[-2] if lhs.dim() > 1 else 1),
        MatMulSerializationMode.ReducingDim: ("summed dimension", lhs.shape[-1]),
        MatMulSerializationMode.OutputChannels: ("columns", rhs.shape[-1]),
    }[mode]
    if factor < 1 or size % factor:
        raise CheckError(f"serializedMatMul cannot split the {dim} ({size}) into {factor} equal parts")
    if mode == MatMulSerializationMode.InputChannels:
        return torch.cat([torch.matmul(part, rhs) for part in lhs.chunk(factor, -2)], -2)
    if mode == MatMulSerializationMode.OutputChannels:
        return torch.cat([torch.matmul(lhs, part) for part in rhs.chunk(factor, -1)], -1)
    pairs = zip(lhs.chunk(factor, -1), rhs.chunk(factor, -2), strict=True)
    wide = keep_precision and lhs.dtype == torch.float16
    parts = [torch.matmul(a, b).float() if wide else torch.matmul(a, b) for a, b in pairs]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total.to(lhs.dtype)


# --- points and labels ------------------------------------------------------------------------------------------------


def ctc_beam_search_decoder(
    probs: torch.Tensor, lengths: torch.Tensor, blank: int = 0, beam_width: int = 100, top_paths: int = 1
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The most likely label sequences of sequences of log-probabilities.

    Args:
        probs: Log-probabilities, [time, batch, classes].
        lengths: Valid steps of each sequence, [batch].
        blank: The class of no label.
        beam_width: Beams that are kept.
        top_paths: Sequences that are returned.

    Returns:
        Log-probabilities [batch, paths], lengths [batch, paths] and labels [batch, paths, time], most likely first.

    Raises:
        Error: Shapes that do not fit, more paths than beams, or no model is recorded.
    """
    if probs.dim() != 3 or lengths.shape != probs.shape[1:2]:
        raise Error(
            f"ctc_beam_search_decoder takes log-probabilities [time, batch, classes] and lengths [batch], got "
            f"{list(probs.shape)} and {list(lengths.shape)}"
        )
    if not 0 < top_paths <= beam_width:
        raise Error(f"ctc_beam_search_decoder cannot give {top_paths} paths of {beam_width} beams")
    if not 0 <= blank < probs.shape[2]:
        raise Error(f"the blank {blank} is none of the {probs.shape[2]} classes")
    if not isRunningOnIpu():
        raise Error("ctc_beam_search_decoder runs on the device", remedy="call it in a model's forward")
    found: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = torch.ops.abele.ctc_decode(
        probs, lengths, blank, beam_width, top_paths
    )
    return found


def fps(src: torch.Tensor, ptr: Sequence[int], ratio: float = 0.5, random_start: bool = False) -> torch.Tensor:
    """Farthest point sampling: of each set, points each as far as possible from those before it.

    Args:
        src: All points, [points, features].
        ptr: First element of each set, and the end.
        ratio: Part of each set that is taken.
        random_start: True to begin with a random point, otherwise with the first.

    Returns:
        Numbers of the points that were taken.
    """
    bounds = [int(n) for n in ptr]
    taken: list[torch.Tensor] = []
    for begin, end in itertools.pairwise(bounds):
        points = src[begin:end]
        number = torch.randint(0, end - begin, (1,)) if random_start else torch.zeros(1, dtype=torch.long)
        distance = torch.full((end - begin,), torch.inf, dtype=src.dtype)
        for step in range(math.ceil((end - begin) * ratio)):
            if step:
                number = distance.argmax(0, keepdim=True)
            taken.append(number + begin)
            nearer = (points - points.index_select(0, number)).square().sum(1)
            distance = torch.minimum(distance, nearer)
    return torch.cat(taken)


def nearest(x: torch.Tensor, y: torch.Tensor, batch_x: Any = None, batch_y: Any = None) -> torch.Tensor:
    """For each row of ``x`` the number of the nearest row of ``y``.

    Args:
        x: [points, features], or [points].
        y: [others, features], or [others].
        batch_x: Number of the set of each row of ``x``; only rows of the same set are near.
        batch_y: The same of ``y``.
    """
    x, y = (t.reshape(-1, 1) if t.dim() == 1 else t for t in (x, y))
    distance = (x.unsqueeze(1) - y.unsqueeze(0)).square().sum(2)
    if batch_x is not None and batch_y is not None:
        sets = [torch.as_tensor(b) for b in (batch_x, batch_y)]
        distance = torch.where(sets[0].unsqueeze(1) == sets[1].unsqueeze(0), distance, torch.inf)
    return distance.argmin(1)

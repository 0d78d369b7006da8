"""PyTorch's functions that look at values, change what their schema does not say, or have no form without data.

While a model is recorded, these stand in for them; they do the same out of what can be recorded. Products of which one
operand is in half precision and another is not, which PyTorch refuses, take all in the type of the activations, as
PopTorch does: weights in float32 keep gradients and optimiser state in float32.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as functional
import torch.utils._pytree as pytree
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules import transformer
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from abele.frontends.poptorch import logs
from abele.frontends.poptorch.capture import marks, packed
from abele.frontends.poptorch.capture.call_errors import refused_on_host
from abele.frontends.poptorch.capture.known_values import known_value, on_host
from abele.frontends.poptorch.capture.packed import packed_layers
from abele.frontends.poptorch.capture.patches import patched
from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.program.blocks import user_line
from abele.frontends.poptorch.values import structures

Tensor = torch.Tensor
Lengths = Tensor | Sequence[int] | int
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
_RECORDED = torch.device("cpu")
_TYPES = {
    torch.float16: "Half",
    torch.float32: "Float",
    torch.float64: "Double",
    torch.bfloat16: "BFloat16",
    torch.uint8: "Byte",
    torch.int8: "Char",
    torch.int16: "Short",
    torch.int32: "Int",
    torch.int64: "Long",
}
"""Names of types in messages."""


@contextmanager
def functions_replaced() -> Iterator[Replaced]:
    """Inside, calls that are recorded call the functions of this module."""
    mode, device = Replaced(), FakeTensor.device
    assert isinstance(device, property)
    with (
        patched(_BatchNorm, forward=_averaging(_BatchNorm.forward)),
        patched(nn.RNNBase, check_input=_of_any_type(nn.RNNBase.check_input)),
        patched(transformer, _detect_is_causal_mask=_is_causal),
        patched(FakeTensor, device=property(lambda tensor: mode.device_of(tensor, device.fget(tensor)))),
        packed_layers(),
        mode,
    ):
        yield mode


class Replaced(TorchFunctionMode):
    """Calls others in place of some functions, and keeps tensors on the host apart that a program puts there.

    While a model is recorded there is one device, under two names. What a program makes with ``device="cpu"`` stays on
    the host until it is moved, as do results of such tensors alone; no call takes them together with others. Tensors
    without a device, those that others name (``device=x.device``) and those from outside of ``forward`` are constants.
    """

    def __init__(self) -> None:
        super().__init__()
        self._host: dict[int, Tensor] = {}

    def warn_of_host(self, results: Sequence[Tensor]) -> None:
        """Warn of results that the device never makes."""
        if any(id(result) in self._host for result in results):
            logs.warn("Output expected to be on the IPU but is on cpu")

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The function, or what stands in for it."""
        replacement = _FUNCTIONS.get(function) or _BUILT_IN.get(getattr(function, "__name__", ""), function)
        given = dict(kwargs or {})
        moves = function is torch.Tensor.to
        # Bodies of control flow are traced by PyTorch's compiler, through this function, and it knows no frames.
        traced = torch.compiler.is_dynamo_compiling()
        is_host = not traced and (self._is_moved(args, given) if moves else self._is_host(function, args, given))
        if "device" in given:
            given["device"] = _recorded_device(given["device"])
        if moves or function is torch.Tensor.new_tensor:
            args = tuple(_recorded_device(arg) for arg in args)
        if getattr(function, "__name__", "") in _PRODUCTS:
            args, given = _in_one_type(function, args, given)
        made = replacement(*args, **given)
        if isinstance(made, torch.device):
            return made if is_host or made != _RECORDED else _RECORDED
        if is_host:
            self._host |= {id(leaf): leaf for leaf in structures.leaves(made) if isinstance(leaf, Tensor)}
        return made

    def device_of(self, tensor: Tensor, device: torch.device) -> torch.device:
        """The device of a tensor: one object for all but those on the host, by which names of it are told apart."""
        return _RECORDED if device == _RECORDED and id(tensor) not in self._host else device

    def _is_moved(self, args: tuple[Any, ...], given: dict[str, Any]) -> bool:
        """True if ``args[0].to(...)`` is on the host, where it was already."""
        key = id(args[0])
        to = [value for value in (*args[1:], *given.values()) if isinstance(value, str | torch.device | Tensor)]
        if key in self._host and any(not _names_host(v) and id(v) not in self._host for v in to):
            del self._host[key]
        return key in self._host

    def _is_host(self, function: Any, args: tuple[Any, ...], given: dict[str, Any]) -> bool:
        # Sequences are packed by lengths that PyTorch wants on the host.
        packs = getattr(function, "__name__", "") in _BUILT_IN
        if self._host and not packs and self._all_on_host(function, args, given):
            return True
        return "device" in given and _names_host(given["device"]) and not _is_called_by_pytorch()

    def _all_on_host(self, function: Any, args: tuple[Any, ...], given: dict[str, Any]) -> bool:
        """True if a call reads tensors on the host alone.

        Raises:
            Error: It reads some there, and some on the device.
        """
        tensors = [leaf for leaf in structures.leaves((args, given)) if isinstance(leaf, Tensor)]
        there = [tensor for tensor in tensors if id(tensor) in self._host]
        # Numbers go wherever they are read.
        wrong = next((tensor for tensor in there if tensor.dim()), None)
        if wrong is not None and len(there) < len(tensors) and function is not torch.Tensor.copy_:
            dtype = _TYPES.get(wrong.dtype, str(wrong.dtype).removeprefix("torch.").capitalize())
            raise Error(
                f"Expected an IPU tensor but got tensor(device=cpu, shape={list(wrong.shape)}, dtype={dtype})",
                at=user_line() or None,
                remedy='leave out device="cpu", or move it to where the others are: tensor.to(x.device)',
            )
        return bool(there) and len(there) == len(tensors)


def _is_called_by_pytorch() -> bool:
    """True if code of PyTorch's own makes the call at hand, through whatever looks at calls here."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__package__") == __package__:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "torch"


def _names_host(device: Any) -> bool:
    """True for the host as a program names it; not for the device of a tensor."""
    return device is not _RECORDED and (device == "cpu" or (isinstance(device, torch.device) and device == _RECORDED))


_MATMULS = ("matmul", "__matmul__", "__rmatmul__", "mm", "bmm")
_PRODUCTS = frozenset(
    [
        "linear",
        "matmul",
        "__matmul__",
        "__rmatmul__",
        "mm",
        "bmm",
        "mv",
        "dot",
        "vdot",
        "inner",
        "tensordot",
        "einsum",
        "addmm",
        "addbmm",
        "baddbmm",
        "addmv",
        "bilinear",
        "multi_dot",
        "chain_matmul",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "prelu",
        "scaled_dot_product_attention",
        "multi_head_attention_forward",
        "lstm",
        "gru",
        "rnn_tanh",
        "rnn_relu",
        "lstm_cell",
        "gru_cell",
        "rnn_tanh_cell",
        "rnn_relu_cell",
    ]
)
_CHECKED = frozenset({functional.linear, torch.matmul, torch.mm, torch.bmm, *(getattr(Tensor, n) for n in _MATMULS)})
"""Products of floats and integers, which PyTorch refuses on the host alone."""

_HALVES = frozenset({torch.float16, torch.bfloat16})


def _in_one_type(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Arguments of a product, all in the type of the activations where they differ."""
    # A mask that is added to scores may have another type than what is multiplied.
    looked_at = args[:3] if function is functional.scaled_dot_product_attention else (args, kwargs)
    floats = [t for t in pytree.tree_leaves(looked_at) if isinstance(t, Tensor) and t.is_floating_point()]
    kinds = {t.dtype for t in floats}
    if floats and function in _CHECKED and any(_is_whole(t) for t in args if isinstance(t, Tensor)):
        refused_on_host(function, args, kwargs)
    if len(kinds) < 2 or not kinds & _HALVES:
        return args, kwargs
    dtype = next((t for t in floats if not _is_weight(t)), floats[0]).dtype
    return pytree.tree_map_only(Tensor, lambda t: t.to(dtype) if t.dtype in kinds else t, (args, kwargs))


def _is_whole(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() and not tensor.is_complex()


def _is_weight(tensor: Tensor) -> bool:
    """True for a parameter, a view of one, and known values, as buffers are."""
    viewed = tensor._base if tensor._is_view() else tensor
    return isinstance(viewed, nn.Parameter) or known_value(tensor) is not None


def _of_any_type(check: Callable[..., None]) -> Callable[..., None]:
    """The check of a recurrent layer's input, whose type may be another than that of its weights."""

    def checked(self: nn.RNNBase, input: Tensor, batch_sizes: Tensor | None) -> None:
        weights: Any = self._flat_weights[0]
        check(self, input.to(weights.dtype) if weights.dtype != input.dtype else input, batch_sizes)

    return checked


def _is_causal(mask: Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
    """True for a mask that is known to hide later positions; other masks are added as they are."""
    if is_causal is not None or mask is None:
        return bool(is_causal)
    known = known_value(mask)
    if known is None or (size is not None and mask.shape[-2:] != (size, size)) or mask.shape[-2] != mask.shape[-1]:
        return False
    with on_host():
        hidden = known if known.dtype == torch.bool else known == -math.inf
        causal = torch.ones(known.shape[-2:], dtype=torch.bool).triu(1)
        return bool((hidden == causal).all()) and (known.dtype == torch.bool or not known[~hidden].any())


def _recorded_device(device: Any) -> Any:
    """Device of tensors while a model is recorded: the device ``ipu`` is the same as that of the others."""
    kind = device.type if isinstance(device, torch.device) else device
    return _RECORDED if isinstance(kind, str) and kind.partition(":")[0] == "ipu" else device


@torch.library.custom_op("abele::ctc_loss", mutates_args=())
def _ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int,
    reduction: int,
    zero_infinity: bool,
) -> Tensor:
    settings: dict[str, Any] = {"blank": blank, "reduction": reduction, "zero_infinity": zero_infinity}
    return torch.ctc_loss(log_probs, targets, input_lengths, target_lengths, **settings)


@_ctc_loss.register_fake
def _(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int,
    reduction: int,
    zero_infinity: bool,
) -> Tensor:
    return log_probs.new_empty(log_probs.shape[1:-1] if reduction == 0 else ())


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    reduction: str | int = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """One operator, which PyTorch has not: its own makes tensors whose size depends on values."""
    lengths = [n if isinstance(n, Tensor) else torch.tensor(n) for n in (input_lengths, target_lengths)]
    number = _REDUCTIONS[reduction] if isinstance(reduction, str) else reduction
    settings: dict[str, Any] = {"blank": blank, "reduction": number, "zero_infinity": zero_infinity}
    made: Tensor = _ctc_loss(log_probs, targets, lengths[0], lengths[1], **settings)
    return made


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """The loss without a look at whether variances are negative."""
    spread = var if isinstance(var, Tensor) else torch.full_like(input, var)
    if spread.shape != input.shape and spread.shape == input.shape[:-1]:
        spread = spread.unsqueeze(-1)
    # A variance that is raised to eps keeps the gradient of the variance itself.
    spread = spread + (spread.clamp(min=eps) - spread).detach()
    loss = 0.5 * (torch.log(spread) + (input - target) ** 2 / spread)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _as_loss(loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss)


def _marked(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Loss that PyTorch computes without an operator of its own, marked as a loss."""
    return lambda *args, **settings: _as_loss(function(*args, **settings))


def _as_loss(value: Tensor) -> Tensor:
    marked: Tensor = marks.loss(value)
    return marked


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """The norm, whose changes of running statistics PyTorch does not tell the recorder."""
    of_input = use_input_stats or running_mean is None
    kept = (None, None) if of_input else (running_mean, running_var)
    if use_input_stats and running_mean is not None and running_var is not None:
        with torch.no_grad():
            variance, mean = torch.var_mean(input, tuple(range(2, input.ndim)), correction=1)
            running_mean.copy_(running_mean * (1 - momentum) + mean.mean(0) * momentum)
            running_var.copy_(running_var * (1 - momentum) + variance.mean(0) * momentum)
    return functional.instance_norm(input, *kept, weight, bias, use_input_stats=of_input, momentum=momentum, eps=eps)


def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    *,
    out: tuple[Tensor, ...] | None = None,
) -> tuple[Tensor, ...]:
    """Norm in terms of operators whose schemas declare the change of running statistics."""
    legit = torch.ops.aten._native_batch_norm_legit
    if running_mean is None or running_var is None:
        made = legit.no_stats(input, weight, bias, training=training, momentum=momentum, eps=eps)
    else:
        statistics = running_mean, running_var
        made = legit(input, weight, bias, *statistics, training=training, momentum=momentum, eps=eps)
    return made if out is None else tuple(given.copy_(result) for given, result in zip(out, made, strict=True))


def linear_cross_entropy(*args: Any, options: Any = None, **settings: Any) -> Tensor:
    """The loss without the chunks by which PyTorch saves memory on other devices."""
    return functional.linear_cross_entropy(*args, **settings)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Codes of as many classes as are given, or as the known values of a tensor need.

    Raises:
        Error: The number of classes would depend on values.
    """
    if num_classes == -1 and known_value(tensor) is None:
        raise Error(
            "OneHot num classes must be specified and must be constant.",
            at=user_line() or None,
            remedy="torch.nn.functional.one_hot(tensor, num_classes)",
        )
    return functional.one_hot(tensor, num_classes)


def _averaging(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Batch norm whose running statistics are plain averages of all batches so far, without momentum."""

    def averaged(self: _BatchNorm, input: Tensor) -> Tensor:
        mean, var, count = self.running_mean, self.running_var, self.num_batches_tracked
        if self.momentum is not None or not self.training or mean is None or var is None or count is None:
            return forward(self, input)
        check: Callable[[Tensor], None] = self._check_input_dim
        check(input)
        with torch.no_grad():
            count.add_(1)
            share = 1 / count.to(mean.dtype)
            dims = (0, *range(2, input.ndim))
            own_var, own_mean = torch.var_mean(input.to(mean.dtype), dims, correction=1)
            mean.copy_(mean + (own_mean - mean) * share)
            var.copy_(var + (own_var - var) * share)
        return functional.batch_norm(input, None, None, self.weight, self.bias, training=True, eps=self.eps)

    return averaged


def narrow(tensor: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """``tensor.narrow(…)``; a dynamic slice, whose size is known all the same, where the device computes the start."""
    if not isinstance(start, Tensor) or known_value(start) is not None:
        return torch.narrow(tensor, dim, start, length)
    made: Tensor = torch.ops.abele.dynamic_slice(tensor, dim % tensor.dim(), start, length, 1)
    return made


_BUILT_IN: dict[str, Callable[..., Any]] = {
    "_pack_padded_sequence": packed.pack,
    "_pad_packed_sequence": packed.pad,
}
_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    functional.ctc_loss: ctc_loss,
    torch.ctc_loss: ctc_loss,
    functional.gaussian_nll_loss: gaussian_nll_loss,
    functional.instance_norm: instance_norm,
    functional.kl_div: _marked(functional.kl_div),
    functional.linear_cross_entropy: linear_cross_entropy,
    functional.one_hot: one_hot,
    functional.multilabel_soft_margin_loss: _marked(functional.multilabel_soft_margin_loss),
    functional.triplet_margin_with_distance_loss: _marked(functional.triplet_margin_with_distance_loss),
    torch.narrow: narrow,
    torch.native_batch_norm: native_batch_norm,
    torch.Tensor.narrow: narrow,
}

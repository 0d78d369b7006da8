"""Calls to check: entries of PyTorch's databases of operators and modules, and samples of each, as small modules."""

from __future__ import annotations

import copy
import fnmatch
import functools
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from operators import choices

if TYPE_CHECKING:
    from torch.testing._internal.opinfo.core import OpInfo, SampleInput

DTYPES = {"f32": torch.float32, "f16": torch.float16, "i32": torch.int32, "bool": torch.bool}

_LOOKED_AT = 300
"""Samples of an entry from which some are chosen, evenly; some entries have thousands."""


@dataclass(frozen=True)
class Entry:
    """An entry of a database.

    Attributes:
        name: The operator with its variant, as in ``div:floor_rounding``, or the module, as in ``nn.Linear``.
        kind: ``operator`` or ``module``.
        info: PyTorch's record of it.
    """

    name: str
    kind: str
    info: Any

    def takes(self, dtype: torch.dtype) -> bool:
        """True if the entry is defined for a type."""
        types = self.info.dtypes
        return dtype in types or (self.kind == "module" and dtype == torch.float16 and torch.float32 in types)

    def is_differentiable(self, dtype: torch.dtype) -> bool:
        """True if the entry has a gradient in a type."""
        if not dtype.is_floating_point:
            return False
        return self.kind == "module" or bool(
            self.info.supports_autograd and dtype in self.info.supported_backward_dtypes("cpu")
        )


def entries(globs: Iterable[str] = ("*",)) -> list[Entry]:
    """The entries whose names match one of the patterns, with or without their variant."""
    # The databases take seconds to import, and every worker imports this module.
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_modules import module_db

    found = [Entry(_name(info), "operator", info) for info in op_db]
    found += [Entry(info.name, "module", info) for info in module_db]
    patterns = list(globs)
    return [e for e in found if any(_matches(e.name, pattern) for pattern in patterns)]


def _name(info: OpInfo) -> str:
    return f"{info.name}:{info.variant_test_name}" if info.variant_test_name else info.name


def _matches(name: str, pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(shown, pattern) for shown in (name, name.split(":")[0]))


@dataclass
class Case:
    """One call to check.

    Attributes:
        label: Name of the sample, as in ``sample 3``, ``in place`` or ``train 0``.
        function: Function to call, with ``args`` and ``kwargs``.
        args: Positional arguments, with nested tensors.
        kwargs: Keyword arguments.
        trains: True if the gradient is checked as well.
        module: The module under test, for modules.
        finish: Function of a result before its gradient is taken.
        changes_input: True if the first argument is changed in place.
        trained: Function to call where gradients are checked, if not ``function``: only of some of the input's
            elements, such as those of a triangle, the gradient has a meaning.
        is_wide: True if all of it is in float64.
        determined: Part of a result that is determined, where it is a choice among equals; None where all of it is.
    """

    label: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    trains: bool = False
    module: nn.Module | None = None
    finish: Callable[[Any], Any] = field(default=lambda result: result)
    changes_input: bool = False
    trained: Callable[..., Any] | None = None
    is_wide: bool = False
    determined: Callable[[Any], Any] | None = None

    def tensors(self) -> list[torch.Tensor]:
        """The tensors among the arguments."""
        return [leaf for leaf in pytree.tree_leaves((self.args, self.kwargs)) if isinstance(leaf, torch.Tensor)]


def cases(entry: Entry, dtype: torch.dtype, count: int, *, gradients: bool = True) -> Iterator[Case]:
    """Up to ``count`` samples of an entry, spread over all that it has, and its other forms once each."""
    torch.manual_seed(20)
    trains = gradients and entry.is_differentiable(dtype)
    if entry.kind == "module":
        for training in (False, True):
            yield from _module_cases(entry, dtype, count, training=training, trains=trains)
    else:
        yield from _operator_cases(entry.info, dtype, count, trains)


def _operator_cases(info: OpInfo, dtype: torch.dtype, count: int, trains: bool) -> Iterator[Case]:
    chosen = _spread(_usable(info, dtype, trains), count)
    for number, sample in chosen:
        yield Case(
            f"sample {number}", info.op, (sample.input, *sample.args), dict(sample.kwargs),
            trains=trains and _differentiable(sample), finish=sample.output_process_fn_grad,
            trained=functools.partial(info.gradcheck_wrapper, info.op),
            determined=choices.determined(info.name, sample),
        )  # fmt: skip
    if dtype != torch.float32:
        return  # The other forms differ in nothing but where the result goes.
    in_place = info.get_inplace()
    fitting = [(n, s) for n, s in chosen if not s.broadcasts_input and isinstance(s.input, torch.Tensor)]
    if in_place is not None and (fits := [f for f in fitting if _keeps_type(info, f[1])]):
        number, sample = fits[-1]
        yield Case(
            f"in place, sample {number}", in_place, (sample.input, *sample.args), dict(sample.kwargs),
            changes_input=True,
        )  # fmt: skip
    if info.supports_out and chosen:
        number, sample = chosen[0]
        yield Case(
            f"out=, sample {number}", _Out(info.op), (sample.input, *sample.args), dict(sample.kwargs),
            finish=sample.output_process_fn_grad, determined=choices.determined(info.name, sample),
        )  # fmt: skip


class _Out:
    """A call of an operator whose result goes into a tensor made for it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The tensors written."""
        made = self.function(*args, **kwargs)
        out = pytree.tree_map_only(torch.Tensor, torch.empty_like, made)
        out = tuple(out) if isinstance(out, (tuple, list)) else out
        self.function(*args, **kwargs, out=out)
        return out


def _usable(info: OpInfo, dtype: torch.dtype, trains: bool) -> Iterator[tuple[int, SampleInput]]:
    """Samples of dense real tensors with elements, with their numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = info.sample_inputs("cpu", dtype, requires_grad=trains)
        for number, sample in enumerate(itertools.islice(made, _LOOKED_AT)):
            tree = (sample.input, sample.args, sample.kwargs)
            tensors = [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]
            if all(t.numel() and t.layout == torch.strided and not t.is_complex() for t in tensors):
                yield number, sample


def _spread(items: Iterable[Any], count: int) -> list[Any]:
    """Up to ``count`` of the items, evenly, the first and the last among them."""
    found = list(items)
    if len(found) <= count:
        return found
    return [found[round(i * (len(found) - 1) / max(1, count - 1))] for i in range(count)]


def _differentiable(sample: SampleInput) -> bool:
    leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    return any(isinstance(t, torch.Tensor) and t.requires_grad for t in leaves)


def _keeps_type(info: OpInfo, sample: SampleInput) -> bool:
    """True if the result of a call fits into its first argument."""
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            result = info.get_inplace()(sample.input.clone(), *sample.args, **sample.kwargs)
    except Exception:
        return False
    return isinstance(result, torch.Tensor)


def _module_cases(entry: Entry, dtype: torch.dtype, count: int, *, training: bool, trains: bool) -> Iterator[Case]:
    info = entry.info
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = info.module_inputs_func(
            info, device="cpu", dtype=dtype, requires_grad=trains and training, training=training
        )
        usable = [(n, s) for n, s in enumerate(made) if s.forward_input is not None and _has_elements(s.forward_input)]
    for number, sample in _spread(usable, count):
        torch.manual_seed(number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
            module = module.to(dtype).train(training)
            if entry.info.is_lazy:
                forward = sample.forward_input
                with torch.no_grad():
                    module(*copy.deepcopy(forward.args), **copy.deepcopy(forward.kwargs))
        yield Case(
            f"{'train' if training else 'eval'} {number}", module, tuple(sample.forward_input.args),
            dict(sample.forward_input.kwargs), trains=trains and training, module=module,
        )  # fmt: skip


def _has_elements(call: Any) -> bool:
    tensors = [t for t in pytree.tree_leaves((call.args, call.kwargs)) if isinstance(t, torch.Tensor)]
    return all(t.numel() and t.layout == torch.strided for t in tensors)


class Model(nn.Module):
    """A case as a model: its tensors are inputs, or parameters where their gradient is checked; the rest is constant.

    Args:
        case: The case.
        training: True for a model that also returns a loss: the sum of the results times fixed weights.
    """

    def __init__(self, case: Case, *, training: bool) -> None:
        super().__init__()
        self._case, self._training = [case], training
        self.module = copy.deepcopy(case.module)
        leaves, self._structure = pytree.tree_flatten((case.args, case.kwargs))
        self._leaves: list[Any] = []
        self.trained = nn.ParameterList()
        self.inputs: list[torch.Tensor] = []
        for leaf in leaves:
            if not isinstance(leaf, torch.Tensor):
                self._leaves.append(("constant", leaf))
            elif training and leaf.requires_grad:
                self._leaves.append(("parameter", len(self.trained)))
                self.trained.append(nn.Parameter(leaf.detach().clone()))
            else:
                self._leaves.append(("input", len(self.inputs)))
                self.inputs.append(leaf.detach().clone())

    def forward(self, *tensors: torch.Tensor) -> Any:
        """The result, and in training the loss."""
        args, kwargs = pytree.tree_unflatten([self._leaf(leaf, tensors) for leaf in self._leaves], self._structure)
        case = self._case[0]
        if not self._training:
            return self._function()(*args, **kwargs)
        # An operator may change what it is given; parameters must stay as they are.
        args, kwargs = pytree.tree_map_only(nn.Parameter, lambda p: p * 1, (args, kwargs))
        result = case.finish(self._function()(*args, **kwargs))
        return result, self._loss(result)

    def _function(self) -> Callable[..., Any]:
        if self.module is not None:
            return self.module
        case = self._case[0]
        return case.trained if self._training and case.trained is not None else case.function

    def _leaf(self, leaf: tuple[str, Any], tensors: tuple[torch.Tensor, ...]) -> Any:
        role, value = leaf
        return {"constant": lambda: value, "parameter": lambda: self.trained[value], "input": lambda: tensors[value]}[
            role
        ]()

    def _loss(self, result: Any) -> torch.Tensor:
        from abele import poptorch

        total: Any = 0.0
        for tensor in pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.requires_grad:
                weights = torch.sin(torch.arange(tensor.numel(), dtype=torch.float32)).reshape(tensor.shape)
                terms = tensor if self._case[0].is_wide else tensor.float()
                total = total + (terms * (weights + 0.3)).sum()
        return poptorch.identity_loss(total, "none")

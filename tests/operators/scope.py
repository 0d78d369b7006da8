"""Calls that are out of scope, with the reason of each."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from operators.samples import Case, Entry, Model

UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}

COMPLEX = "complex: the machine has no complex numbers"
DYNAMIC = "dynamic shape: the shape of the result depends on values"
SPARSE = "sparse: results are dense"
NARROW = "f64 only: the machine has no float64"
UNDEFINED = "no deterministic meaning: results are whatever memory holds, or random"
EMPTY = "no elements: every sample has a tensor without elements"
VALUE = "value: the result is a number of Python, which no recording knows"
VIEWED_IN_PLACE = "view in place: an input of the caller's would have other strides, which torch.export does not record"
NOT_EXPORTED = "not exportable: torch.export itself refuses"


def entry_exclusion(entry: Entry, dtype: torch.dtype) -> str | None:
    """Why an entry has no meaning here; None if it has."""
    types = set(entry.info.dtypes)
    if types and all(t.is_complex for t in types):
        return COMPLEX
    if types == {torch.float64}:
        return NARROW
    if entry.name.split(":")[0] in UNINITIALISED:
        return UNDEFINED
    return None


def result_exclusion(result: Any) -> str | None:
    """Why a result of PyTorch cannot be one here; None if it can."""
    if not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(result)):
        return VALUE
    for tensor in pytree.tree_leaves(result):
        if not isinstance(tensor, torch.Tensor):
            continue
        if tensor.layout != torch.strided:
            return SPARSE
        if tensor.is_complex():
            return COMPLEX
        if not tensor.numel():
            return EMPTY
        if tensor.is_quantized:
            return "quantised: types with a scale do not exist on the machine"
        if tensor.dtype in (torch.uint16, torch.uint32, torch.uint64):
            return f"type: {tensor.dtype} is no type of networks"
    return None


class _DrawsRandomNumbers(TorchDispatchMode):
    """Notes whether an operator that runs below it draws random numbers."""

    found = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found |= torch.Tag.nondeterministic_seeded in function.tags
        return function(*args, **(kwargs or {}))


def is_random(case: Case) -> bool:
    """True if PyTorch draws random numbers for a call, whatever seed it sets for them."""
    model = Model(case, training=False)
    with _DrawsRandomNumbers() as watch, torch.no_grad():
        model(*model.inputs)
    return watch.found


def failure_exclusion(case: Case) -> str | None:
    """Why a call that failed here cannot be recorded by PyTorch at all; None if it can."""
    model = Model(case, training=False)
    if case.changes_input:
        inputs = [t.clone() for t in model.inputs]
        with torch.no_grad():
            model(*inputs)
        if any(a.stride() != b.stride() for a, b in zip(inputs, model.inputs, strict=True)):
            return VIEWED_IN_PLACE
    try:
        program = torch.export.export(model, tuple(model.inputs), strict=False)
    except Exception as error:
        text = str(error)
        if "data-dependent" in text.lower() or "GuardOnDataDependent" in type(error).__name__:
            return DYNAMIC
        first = text.strip().splitlines()[0] if text.strip() else ""
        return f"{NOT_EXPORTED}: {type(error).__name__}: {first}"[:200]
    for node in program.graph.nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor) and any(not isinstance(size, int) for size in value.shape):
                return DYNAMIC
            if isinstance(value, torch.Tensor) and value.is_complex():
                return COMPLEX
    return None

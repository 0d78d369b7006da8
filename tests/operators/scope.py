"""Which calls are out of scope, and why each is."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from operators.samples import Case, Entry, Model

UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}

COMPLEX = "complex: the machine has no complex numbers"
DYNAMIC = "dynamic shape: the shape of the result depends on values"
SPARSE = "sparse: results are dense"
NARROW = "f64 only: the machine has no float64"
UNDEFINED = "no deterministic meaning: results are whatever memory holds, or random"
EMPTY = "no elements: every sample has a tensor without elements"
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
    return None


def is_random(case: Case, expected: Any) -> bool:
    """True if PyTorch gives another result when it draws other random numbers."""
    state = torch.get_rng_state()
    try:
        torch.manual_seed(12345)
        with torch.no_grad():
            model = Model(case, training=False)
            again = model(*model.inputs)
    except Exception:
        return False
    finally:
        torch.set_rng_state(state)
    pairs = zip(pytree.tree_leaves(expected), pytree.tree_leaves(again), strict=True)
    return any(
        isinstance(a, torch.Tensor) and (a.shape != b.shape or not torch.equal(a.nan_to_num(), b.nan_to_num()))
        for a, b in pairs
    )


def failure_exclusion(case: Case) -> str | None:
    """Why a call that failed here cannot be recorded by PyTorch at all; None if it can."""
    model = Model(case, training=False)
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

"""Residual branches of a model by the names of their modules.

``x + self.attention(self.norm(x))`` says nothing of which operand is a branch. Where the model's owner names
``attention`` as one, its result is marked, and the sum that it is added in becomes a weighted one. Its gradient is
scaled where it enters the module, so that what lies inside sees gradients of variance 1.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from abele.errors import nearest
from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.unit_scaling import functional
from abele.frontends.poptorch.unit_scaling.rules import Rules, residual_factors
from abele.frontends.poptorch.unit_scaling.scaling import scale_backward


def matching(module: nn.Module, pattern: str, what: str) -> list[str]:
    """Names of the modules that a pattern fits; ``*`` stands for anything.

    Raises:
        Error: It fits none.
    """
    names = [name for name, _ in module.named_modules(remove_duplicate=False) if name]
    found = [name for name in names if fnmatch.fnmatchcase(name, pattern)]
    if not found:
        close = nearest(pattern, names)
        raise Error(
            f"no module fits {pattern!r}, which is named as {what}",
            remedy=f"did you mean {close!r}?" if close else f"modules are {', '.join(names[:8])}",
        )
    return found


class Residuals:
    """Results of branches, while a forward pass runs.

    Args:
        rules: Rules of the factors.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._open: dict[int, tuple[torch.Tensor, str, float]] = {}

    def mark(self, module: nn.Module, branches: Mapping[str, float | None] | Sequence[str]) -> None:
        """Let modules of these names be branches, each with its τ or the rules' own.

        Raises:
            Error: A name that no module has.
        """
        taus = branches if isinstance(branches, Mapping) else dict.fromkeys(branches)
        for pattern, tau in taus.items():
            share = functional.default_tau(tau, self.rules)
            residual_factors(self.rules, share)
            for name in matching(module, pattern, "a residual branch"):
                branch = module.get_submodule(name)
                branch.register_forward_pre_hook(_Entering(self, share))
                branch.register_forward_hook(_Leaving(self, name, share))

    def leave(self, made: torch.Tensor, name: str, tau: float) -> None:
        """Mark a branch's result."""
        self._open[id(made)] = made, name, tau

    def added(self, left: Any, right: Any) -> torch.Tensor | None:
        """The weighted sum, if one of two operands is a branch's result; else None."""
        for branch, past in ((right, left), (left, right)):
            if id(branch) in self._open and isinstance(past, torch.Tensor):
                _, _, tau = self._open.pop(id(branch))
                by_past, _ = residual_factors(self.rules, tau)
                return functional.residual_add(branch, scale_backward(past, by_past), tau, rules=self.rules)
        return None

    @contextmanager
    def running(self) -> Iterator[None]:
        """A forward pass.

        Raises:
            Error: A branch's result was added to nothing.
        """
        self._open.clear()
        try:
            yield
            lost = sorted({name for _, name, _ in self._open.values()})
        finally:
            self._open.clear()
        if lost:
            raise Error(
                f"the result of {lost[0]!r} is named as a residual branch, and is added to nothing",
                because="its sum could not be weighted" + (f" ({len(lost)} branches)" if len(lost) > 1 else ""),
                remedy="name the module whose result is added to the other operand, or call unit_scaling.residual",
            )


class _Entering:
    """Scales the gradient of a branch's input."""

    def __init__(self, residuals: Residuals, tau: float) -> None:
        self.factor = residual_factors(residuals.rules, tau)[1]

    def __call__(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        first, *rest = args
        return (scale_backward(first, self.factor), *rest)


class _Leaving:
    """Marks what leaves a branch."""

    def __init__(self, residuals: Residuals, name: str, tau: float) -> None:
        self.residuals, self.name, self.tau = residuals, name, tau

    def __call__(self, module: nn.Module, args: tuple[Any, ...], made: Any) -> None:
        if not isinstance(made, torch.Tensor):
            raise Error(f"the residual branch {self.name!r} gives {type(made).__name__}, not one tensor")
        self.residuals.leave(made, self.name, self.tau)

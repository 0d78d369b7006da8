"""Changing the pattern of a layer everywhere at once: values, what an optimiser keeps beside them, and the device."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from abele.arrays import Array, Bool
from abele.errors import InvalidOptionError
from abele.frontends.poptorch.errors import Error
from abele.frontends.poptorch.models.executor import PoplarExecutor
from abele.frontends.poptorch.sparse.layers import SparseLinear
from abele.frontends.poptorch.sparse.patterns import moved_values
from abele.frontends.poptorch.values.checks import check_module
from abele.frontends.poptorch.values.tensors import from_array, to_array
from abele.network.ops.sparse_slots import SlotPlan
from abele.session import Session
from abele.sparsity import Pattern


class PatternCarrier:
    """Carries sparse layers of a model from pattern to pattern.

    Args:
        model: The model, or its wrapper.
        optimizer: Optimiser whose moments move with the values; a wrapper's own when left out.

    Attributes:
        layers: The model's layers with a dynamic pattern, by name.

    Raises:
        InvalidOptionError: The model has none.
    """

    def __init__(self, model: torch.nn.Module | PoplarExecutor, optimizer: torch.optim.Optimizer | None = None) -> None:
        self.target = model
        self.model = model.model if isinstance(model, PoplarExecutor) else model
        self.optimizer = optimizer
        check_module("a model with sparse layers", self.model)
        found = {n: m for n, m in self.model.named_modules() if isinstance(m, SparseLinear)}
        self.layers = {n: m for n, m in found.items() if m.dynamic}
        if not self.layers:
            fixed = f"its {len(found)} sparse layers have static patterns" if found else "it has no sparse layer"
            raise InvalidOptionError(
                "the model has no layer whose pattern can change",
                because=fixed,
                remedy="SparseLinear(…, dynamic=True, rows=…)",
            )
        self._check_tied()

    def _check_tied(self) -> None:
        """Raise if two layers share their values.

        Raises:
            InvalidOptionError: They do: a change of one pattern would move the values of the other.
        """
        first: dict[int, str] = {}
        for name, layer in self.layers.items():
            other = first.setdefault(id(layer.values), name)
            if other != name:
                raise InvalidOptionError(
                    f"layers {other!r} and {name!r} share their values, and each has a pattern of its own",
                    because="a value's slot depends on the pattern",
                    remedy="call one layer in both places, or give them values of their own",
                )

    def values(self, name: str) -> Array:
        """Newest values of a layer in its pattern's order [blocks, *block]."""
        return to_array(self.layers[name].pattern_values().detach())

    def carry(self, name: str, pattern: Pattern, kept: Bool | None = None) -> None:
        """Give a layer another pattern: blocks that stay keep value and moments, others have zeros.

        Args:
            name: The layer.
            pattern: Its next pattern.
            kept: True for blocks of the pattern before whose values go on; all by default.
        """
        layer, session = self.layers[name], self._session()
        plan, before = layer.plan, layer.pattern
        assert plan is not None
        plan.check(pattern)
        for moment in self._moments(layer):
            moment.copy_(from_array(_moved(plan, before, pattern, to_array(moment), kept)))
        if session is not None:
            for state in self._states(layer, session):
                session.state[state] = _moved(plan, before, pattern, session.state[state], kept)
        values = moved_values(before, pattern, self.values(name), kept)
        layer.set_pattern(pattern, torch.from_numpy(values))
        if session is not None:
            # The words follow by themselves.
            session.upload([n for n, t in self._weights().items() if t is layer.values])

    def _session(self) -> Session | None:
        """The session of a compiled wrapper, whose device has what is newest."""
        compiled = self.target._compiled if isinstance(self.target, PoplarExecutor) else None
        return None if compiled is None else compiled.session

    def _weights(self) -> dict[str, torch.Tensor]:
        assert isinstance(self.target, PoplarExecutor)
        assert self.target._compiled is not None
        return self.target._compiled.captured.weights

    def _moments(self, layer: SparseLinear) -> Iterator[torch.Tensor]:
        """Tensors that an optimiser on the host keeps for each value of a layer."""
        state = {} if self.optimizer is None else self.optimizer.state.get(layer.values, {})
        yield from (t for t in state.values() if isinstance(t, torch.Tensor) and t.shape == layer.values.shape)

    def _states(self, layer: SparseLinear, session: Session) -> Iterator[str]:
        """Names of what the device keeps for each value of a layer.

        Raises:
            Error: Groups of replicas have values of their own.
        """
        (name,) = (n for n, t in self._weights().items() if t is layer.values)
        ends, replicas = session.compiled.ends.state, session.schedule.replicas
        for state in [s for s in ends if s.startswith(f"{name}/") and s in session.state]:
            shape = ends[state].host_shape(replicas)
            if shape != tuple(layer.values.shape):
                raise Error(
                    f"the pattern of {name!r} cannot change: {state} is {list(shape)}, and not as the values are",
                    because="groups of replicas have values of their own, and a pattern is one for all",
                    remedy="the layer's values in one group: replicaGrouping(…, CommGroupType.All, …)",
                )
            yield state


def _moved(plan: SlotPlan, before: Pattern, after: Pattern, slots: Array, kept: Bool | None) -> Array:
    return plan.encode(after, moved_values(before, after, plan.decode(before, slots), kept))

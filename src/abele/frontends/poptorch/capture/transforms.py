"""Functions that PyTorch transforms (``torch.func.grad``, ``vjp``, ``jvp``, ``jacrev``, ``jacfwd``, ``hessian``,
``vmap``, in one another to any depth) while a model is recorded.

A transform runs its function on wrapped tensors, which the recorder cannot follow: what autograd keeps for a backward
pass is not what the recorder knows. So the outermost transform is worked out by a recorder of its own, below all
wrappers, into a graph of plain calls; running that graph on the tensors that the transform was given puts the calls
into the model's program. Tensors that the function reads from around it are the same objects in both, so gradients of
the whole model flow through them too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
import torch.fx
import torch.overrides
import torch.utils._pytree as pytree
from torch._functorch import apis, eager_transforms
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing, make_fx
from torch.fx.traceback import annotate
from torch.overrides import TorchFunctionMode

from abele.frontends.poptorch.capture.patches import patched
from abele.frontends.poptorch.capture.recording import QUIET

_STOP = "abele_stop"
"""In the notes of a node: the user cuts gradients here. Autograd detaches what it keeps, which cuts none."""

_inside: ContextVar[bool] = ContextVar("abele_transform", default=False)


def is_inside() -> bool:
    """True in a function that is being transformed."""
    return _inside.get()


@contextmanager
def transforms_inlined() -> Iterator[None]:
    """Inside, what transforms make of functions is recorded in their place."""
    # Programs have imported the public names; below them lie these.
    transforms: Any = eager_transforms
    maps: Any = apis
    with (
        patched(maps, vmap_impl=_inlining(maps.vmap_impl)),
        patched(
            transforms,
            grad_impl=_inlining(transforms.grad_impl),
            grad_and_value_impl=_inlining(transforms.grad_and_value_impl),
            _jvp_with_argnums=_inlining(transforms._jvp_with_argnums),
            _vjp_with_argnums=_inlining_both(transforms._vjp_with_argnums),
        ),
    ):
        yield


def _inlining(transform: Callable[..., Any]) -> Callable[..., Any]:
    def inlined(*args: Any, **kwargs: Any) -> Any:
        return transform(*args, **kwargs) if is_inside() else _worked_out(transform, *args, **kwargs)

    return inlined


def _inlining_both(vjp: Callable[..., Any]) -> Callable[..., Any]:
    """Both passes of ``vjp``: its results, and the function that its caller calls later."""

    def inlined(function: Any, *primals: Any, **options: Any) -> Any:
        if is_inside():
            return vjp(function, *primals, **options)

        def forward(*given: Any) -> Any:
            made = vjp(function, *given, **options)
            return made[0], made[2:]

        def pull(given: Any, cotangents: Any) -> Any:
            return vjp(function, *given, **options)[1](cotangents)

        def backward(cotangents: Any, **_: Any) -> Any:
            return pull(primals, cotangents) if is_inside() else _worked_out(pull, primals, cotangents)

        results, further = _worked_out(forward, *primals)
        return results, backward, *further

    return inlined


def _worked_out(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Results of ``function``, as plain calls."""
    leaves, form = pytree.tree_flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    returned: list[Any] = []

    def flat(*entering: torch.Tensor) -> list[torch.Tensor]:
        given = _filled(leaves, entering)
        positional, named = pytree.tree_unflatten(given, form)
        returned[:] = pytree.tree_flatten(function(*positional, **named))
        return [leaf for leaf in returned[0] if isinstance(leaf, torch.Tensor)]

    token = _inside.set(True)
    try:
        with disable_proxy_modes_tracing(), _without_recorder(), _StopNotes():
            graph = make_fx(flat)(*tensors)
    finally:
        _inside.reset(token)
    made = _Replay(_without_kept(graph)).run(*tensors)
    return pytree.tree_unflatten(_filled(returned[0], made), returned[1])


@contextmanager
def _without_recorder() -> Iterator[None]:
    """Call functions past PyTorch's recorder, which would note wrapping and unwrapping, but not past our stand-ins."""
    overrides: Any = torch.overrides
    modes = overrides._get_current_function_mode_stack()
    for _ in modes:
        overrides._pop_mode()
    try:
        with ExitStack() as stack:
            for mode in modes:
                if not type(mode).__module__.startswith("torch."):
                    stack.enter_context(mode)
            yield
    finally:
        for mode in modes:
            overrides._push_mode(mode)


def _filled(leaves: list[Any], tensors: Any) -> list[Any]:
    """``leaves`` with ``tensors`` in place of their own."""
    entering = iter(tensors)
    return [next(entering) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]


def _without_kept(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """A graph without the detaching of what autograd kept, through which the model's own gradients flow."""
    for node in list(graph.graph.nodes):
        if node.target is torch.ops.aten.detach.default and not _noted(node, _STOP):
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph


class _StopNotes(TorchFunctionMode):
    """Notes where the user cuts gradients."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """The function's result."""
        with annotate({_STOP: True}) if function is torch.Tensor.detach else nullcontext():
            return function(*args, **(kwargs or {}))


class _Replay(torch.fx.Interpreter):
    """Makes the calls of a graph, with the same notes on what runs without gradients."""

    def run_node(self, n: torch.fx.Node) -> Any:
        """The result of one call."""
        with annotate({QUIET: True}) if _noted(n, QUIET) else nullcontext():
            return super().run_node(n)


def _noted(node: torch.fx.Node, note: str) -> bool:
    return note in (node.meta.get("custom") or {})

"""Modules: classes that build graphs, and name the variables of these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar
from weakref import WeakKeyDictionary

from abele.frontends import popxl
from abele.frontends.popxl import Graph, Tensor, TensorSpec
from abele.frontends.popxl.graph import current_ipu
from abele.frontends.popxl_addons.dot_tree import DotTree
from abele.frontends.popxl_addons.errors import ModuleError
from abele.frontends.popxl_addons.graph import GraphWithNamedArgs
from abele.frontends.popxl_addons.named_tensors import NamedTensors
from abele.frontends.popxl_addons.variable_factory import (
    Data,
    NamedVariableFactories,
    ShardedVariableFactory,
    VariableFactory,
)

D = TypeVar("D", bound=DotTree[Any])

ON_INLINING = ("error", "warn", "ignore")


class Module(popxl.Module):
    """A part of a model: ``build`` makes its ops, and adds the variables that they read as inputs.

    Modules that are attributes, or in lists, tuples and dictionaries that are, give their variables to the one around
    under the attribute's name. One module is built once per graph: to use variables twice make a graph of it, and call
    that with the same variables.

    ```python
    class Scale(addons.Module):
        def build(self, x):
            by = self.add_variable_input("by", lambda: np.ones(x.shape[-1]), x.dtype)
            return x * by

    factories, graph = Scale().create_graph(x)
    (y,) = graph.bind(factories.init()).call(x)
    ```

    Args:
        cache: Give the graph made before where arguments are like those before.
        grad_inlining_error: ``error``, ``warn`` or ``ignore``: what a gradient does that goes through this module with
            a ``build_grad`` where it was built into another graph, whose gradient does not use it.

    A ``build_grad(*grads)`` makes its own gradient: it takes one gradient per output, and gives one per input that is a
    float, or None for zeros; :meth:`forward_tensor` gives it what ``build`` made.
    """

    _made: ClassVar[WeakKeyDictionary[Graph, Module]] = WeakKeyDictionary()
    _built_in: ClassVar[WeakKeyDictionary[Graph, list[Module]]] = WeakKeyDictionary()

    def __init__(self, cache: bool = False, grad_inlining_error: str = "error") -> None:
        if grad_inlining_error not in ON_INLINING:
            from abele.frontends.popxl.errors import GraphArgumentError

            raise GraphArgumentError(f"grad_inlining_error is error, warn or ignore, not {grad_inlining_error!r}")
        self.cache, self.grad_inlining_error = cache, grad_inlining_error

    def __new__(cls, *_: Any, **__: Any) -> Any:
        """A module with empty tables, whether or not its ``__init__`` calls this class's."""
        made = super().__new__(cls)
        made.cache, made.grad_inlining_error = False, "error"
        made._reset()
        made._cached = {}
        made._wanted = None
        return made

    def _reset(self) -> None:
        self._own_factories = NamedVariableFactories()
        self._own_inputs = NamedTensors()
        self._graph: Graph | None = None
        for _, module in self.submodules():
            module._reset()

    _cached: dict[Any, tuple[NamedVariableFactories, GraphWithNamedArgs]]
    _wanted: Callable[[Tensor], Tensor] | None

    # --- what it has

    def submodules(self) -> Iterator[tuple[str, Module]]:
        """Modules that are attributes, by name."""
        for name, value in list(vars(self).items()):
            yield from _modules(name, value)

    @property
    def variable_factories(self) -> NamedVariableFactories:
        """Makers of its variables, and of those of modules in it."""
        return self._gathered(self._own_factories, lambda m: m.variable_factories)

    @property
    def named_inputs(self) -> NamedTensors:
        """Inputs of the graph for its variables, and for those of modules in it."""
        return self._gathered(self._own_inputs, lambda m: m.named_inputs)

    def _gathered(self, own: D, of: Callable[[Module], D]) -> D:
        made = own.copy()
        seen = {id(value) for value in made.values_flat()}
        for name, module in self.submodules():
            if module._graph is not self._graph:
                continue  # It was built into another graph, or not at all.
            for inner, value in of(module).to_dict().items():
                if id(value) not in seen:  # One module may be two attributes: the first has its variables.
                    made.insert(f"{name}.{inner}", value)
                    seen.add(id(value))
        return made

    # --- building

    def build(self, *args: Any, **kwargs: Any) -> Any:
        """To be defined: the ops of the module."""
        raise NotImplementedError("Your popxl_addons.Module must define a build method")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result of ``build``, in the current graph."""
        graph = popxl.gcg()
        if self._graph is not None and self._graph is not graph:
            self._reset()
        elif self._graph is not None and self.variable_factories:
            raise ModuleError(
                f"The module {type(self).__name__} is built a second time in the graph {graph.name!r}",
                because=f"its variables {', '.join(self.variable_factories.keys_flat()[:6])} are inputs already",
                remedy="make a graph of it, and call that twice with the same variables; or make another module",
            )
        self._graph = graph
        if self.has_build_grad:
            Module._built_in.setdefault(graph, []).append(self)
        with popxl.name_scope(type(self).__name__):
            return self.build(*args, **kwargs)

    def create_graph(self, *args: Any, **kwargs: Any) -> tuple[NamedVariableFactories, GraphWithNamedArgs]:
        """Makers of its variables, and a graph of it whose inputs for them have names.

        Args:
            *args: Arguments of ``build``; tensors and specs become inputs of the graph.
            **kwargs: Further ones by name.

        Raises:
            ModuleError: A module that is built inside is not an attribute, so that its variables have no name.
        """
        ir = popxl.gir()
        key = (ir.id, current_ipu(), _key(args), _key(kwargs)) if self.cache else None
        if key in self._cached:
            factories, made = self._cached[key]
            return factories.copy(), made.copy()
        self._reset()
        graph = ir.create_graph(self, *args, **kwargs)
        factories, made = self.variable_factories, GraphWithNamedArgs(graph, self.named_inputs)
        self._reset()
        Module._made[graph] = self
        lost = [t.id for t in graph.inputs if getattr(t, "module_variable", False) and t not in made.args.tensors]
        if lost:
            raise ModuleError(
                f"{type(self).__name__} has no name for the variables {', '.join(lost)}",
                because="they are of modules that are not attributes of it",
                remedy="self.linear = Linear(…) in __init__, then self.linear(x) in build",
            )
        if key is not None:
            self._cached[key] = factories, made
            return factories.copy(), made.copy()
        return factories, made

    def call_module(self, *args: Any, **kwargs: Any) -> Any:
        """The results of a graph of it, called in the current graph, whose inputs its variables become.

        It is what calling the module gives, with the module's code as a function of its own.
        """
        outer = popxl.gcg()
        factories, graph = self.create_graph(*args, **kwargs)
        self._graph = outer
        tensors = _tensors((*args, *kwargs.values()))
        with popxl.name_scope(type(self).__name__):
            bound = graph.bind(self._add_inputs("", factories))
            made = bound.call(*tensors)
        return made[0] if len(made) == 1 else made or None

    # --- variables

    def add_variable_input(
        self,
        name: str,
        data_iter: Data,
        dtype: Any = None,
        by_ref: bool = False,
        replica_grouping: Any = None,
    ) -> Tensor:
        """A new input of the current graph for a variable.

        Args:
            name: Name of the variable in the module.
            data_iter: Function that gives data to begin with, or an iterable of them.
            dtype: Type of the variable; by default the data's.
            by_ref: True if the graph changes it.
            replica_grouping: Replicas that hold the same.
        """
        return self._add_input(name, VariableFactory(data_iter, dtype, name, by_ref, replica_grouping))

    def add_variable_inputs(self, name: str | int, factories: NamedVariableFactories) -> NamedTensors:
        """New inputs of the current graph for the variables of another, under one name: a layer's number, say."""
        return self._add_inputs(str(name), factories)

    def add_replica_sharded_variable_input(
        self,
        name: str,
        data_iter: Data,
        dtype: Any = None,
        by_ref: bool = False,
        replica_grouping: Any = None,
        shard_over: int | None = None,
    ) -> Tensor:
        """A new input of the current graph for a replica's part of a variable; see :meth:`add_variable_input`.

        Args:
            name: Name of the variable in the module.
            data_iter: Function that gives whole data to begin with, or an iterable of them.
            dtype: Type of the variable.
            by_ref: True if the graph changes it.
            replica_grouping: Replicas that hold the same.
            shard_over: Replicas of a group that have a part each; by default all of it.
        """
        return self._add_input(
            name, ShardedVariableFactory(data_iter, dtype, name, by_ref, replica_grouping, shard_over=shard_over)
        )

    def _add_inputs(self, name: str, factories: NamedVariableFactories) -> NamedTensors:
        prefix = f"{name}." if name else ""
        return NamedTensors.from_dict(
            {inner: self._add_input(f"{prefix}{inner}", fact) for inner, fact in factories.to_dict().items()}
        )

    def _add_input(self, name: str, factory: VariableFactory) -> Tensor:
        if name in self._own_factories:
            raise ModuleError(f"The module {type(self).__name__} has a variable {name!r} already")
        made = factory.create_input(name.rpartition(".")[0])
        self._graph = made.graph
        made.module_variable = True  # type: ignore[attr-defined]
        self._own_factories.insert(name, factory)
        self._own_inputs.insert(name, made)
        return made

    # --- gradients

    def build_grad(self, *grads: Tensor) -> Any:
        """To be defined where the module has a gradient of its own; see the class."""
        raise NotImplementedError(f"{type(self).__name__} has no gradient of its own")

    @property
    def has_build_grad(self) -> bool:
        """True if it has a gradient of its own."""
        return type(self).build_grad is not Module.build_grad

    @classmethod
    def of_graph(cls, graph: Graph) -> Module | None:
        """The module that made a graph by :meth:`create_graph`."""
        return cls._made.get(graph)

    @classmethod
    def inlined_in(cls, graph: Graph) -> list[Module]:
        """Modules with a gradient of their own, built into a graph of another module."""
        return [m for m in cls._built_in.get(graph, ()) if m is not cls._made.get(graph)]

    def grads_of(self, grads: list[Tensor], forward_tensor: Callable[[Tensor], Tensor]) -> list[Tensor | None]:
        """Results of ``build_grad``, as a list."""
        self._wanted = forward_tensor
        try:
            made = self.build_grad(*grads)
        finally:
            self._wanted = None
        return list(made) if isinstance(made, list | tuple) else [made]

    def forward_tensor(self, tensor: Tensor) -> Tensor:
        """A tensor of ``build``, for use in ``build_grad``.

        Raises:
            ModuleError: Outside of ``build_grad``.
        """
        if self._wanted is None:
            raise ModuleError("forward_tensor is for build_grad")
        return self._wanted(tensor)


class ModuleList(list[Module], Module):
    """Modules in a list, which are named by their numbers."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        list.__init__(self, modules)

    __hash__ = object.__hash__  # type: ignore[assignment]
    __call__ = Module.__call__

    def submodules(self) -> Iterator[tuple[str, Module]]:
        """Its modules, by number."""
        for number, module in enumerate(self):
            yield str(number), module


def _modules(name: str, value: Any) -> Iterator[tuple[str, Module]]:
    if isinstance(value, Module) and not isinstance(value, ModuleList):
        yield name, value
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _modules(f"{name}.{number}", inner)
    elif type(value) is dict and not name.startswith("_"):
        for key, inner in value.items():
            yield from _modules(f"{name}.{key}", inner)


def _tensors(args: Iterable[Any]) -> list[Tensor]:
    """Tensors among arguments, in the order in which a graph takes them."""
    found = []
    for arg in args:
        if isinstance(arg, Tensor):
            found.append(arg)
        elif isinstance(arg, list | tuple):
            found += [t for t in arg if isinstance(t, Tensor)]
    return found


def _key(value: Any) -> Any:
    """The key of like graphs: shapes and types of tensors, and values of other arguments, if these can be compared."""
    if isinstance(value, Tensor | TensorSpec):
        return ("tensor", value.shape, value.dtype.name, tuple(value.meta_shape))
    if isinstance(value, list | tuple):
        return (type(value).__name__, *map(_key, value))
    if isinstance(value, Mapping):
        return tuple(sorted((str(name), _key(inner)) for name, inner in value.items()))
    try:
        hash(value)
    except TypeError:
        return object()
    return (type(value).__name__, value)


__all__ = ["Module", "ModuleList"]

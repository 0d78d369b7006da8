"""Modules: graphs with names for their variables, caches, gradients of their own, and wrong uses."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from abele.popxl_addons.layers import Linear
from abele.popxl_addons.named_replica_grouping import fill_none_group, is_cross_instance
from abele.popxl_addons.ops.replicated_strided_collectives import replicated_all_gather_strided
from abele.popxl_addons.variable_factory import VariableFactory

from abele import popxl
from abele import popxl_addons as addons
from abele.frontends.popxl_addons.errors import GradientInliningError, ModuleError, TreeNameError
from abele.popxl import ops

SPEC = popxl.TensorSpec((2, 3), popxl.float32)
X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Scale(addons.Module):
    def build(self, x: popxl.Tensor, more: float = 0.0) -> popxl.Tensor:
        return x * self.add_variable_input("by", lambda: np.full(3, 2.0), x.dtype) + more


class Twice(addons.Module):
    """Modules as an attribute, in a list, in a dictionary, and one that is called as a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.rest, self.last = Scale(), [Scale(), Scale()], {"end": Scale()}
        self.more = addons.ModuleList([Scale()])

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        for scale in (self.first, *self.rest, *self.more):
            x = scale(x)
        return self.last["end"].call_module(x, 1.0)


def run(ir: popxl.Ir, *tensors: popxl.Tensor) -> list[Any]:
    streams = [addons.host_store(t) for t in tensors]
    with popxl.Session(ir) as session:
        made = session.run()
    return [made[s] for s in streams]


def test_variables_of_modules_inside_have_their_attributes_names() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        facts, graph = Twice().create_graph(SPEC)
        names = ["first.by", "last.end.by", "more.0.by", "rest.0.by", "rest.1.by"]
        assert facts.keys_flat() == graph.args.keys_flat() == names
        one, two = facts.init("one"), facts.init("two")
        assert one.rest["1"].by.name == "one.rest.1.by"
        x = popxl.constant(X)
        (a,), (b,) = graph.bind(one).call(x), graph.bind(two).call(graph.bind(one).call(x)[0])
        found = run(ir, a, b)
    np.testing.assert_allclose(found[0], X * 32 + 1)
    np.testing.assert_allclose(found[1], (X * 32 + 1) * 32 + 1)
    assert len(ir.main_graph.called_graphs) == 1


def test_a_cache_gives_one_graph_for_like_arguments() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        module = Scale(cache=True)
        graphs = [module.create_graph(SPEC)[1], module.create_graph(SPEC)[1], module.create_graph(SPEC, 1.0)[1]]
        facts, again = module.create_graph(SPEC)
        facts.pop("by")
        assert module.create_graph(SPEC)[0].keys_flat() == ["by"]
        # Shards of other tensors, and graphs on another IPU, are not like them.
        shard = popxl.TensorSpec(SPEC.shape, SPEC.dtype, (3, *SPEC.shape))
        graphs.append(module.create_graph(shard)[1])
        assert graphs[-1].graph.inputs[0].meta_shape == shard.meta_shape
        with popxl.ipu(1):
            graphs.append(module.create_graph(SPEC)[1])
    assert graphs[0].graph is graphs[1].graph is again.graph
    assert len({g.graph for g in graphs}) == 4
    with popxl.Ir().main_graph:
        assert module.create_graph(SPEC)[1].graph.ir != ir
    with ir.main_graph:
        plain = Scale()
        assert plain.create_graph(SPEC)[1].graph is not plain.create_graph(SPEC)[1].graph


def test_wrong_uses_of_modules_are_named() -> None:
    class Lost(addons.Module):
        def build(self, x: popxl.Tensor) -> popxl.Tensor:
            return Scale()(x)

    class Again(addons.Module):
        def __init__(self) -> None:
            self.scale = Scale()

        def build(self, x: popxl.Tensor) -> popxl.Tensor:
            return self.scale(self.scale(x))

    class Same(addons.Module):
        def build(self, x: popxl.Tensor) -> popxl.Tensor:
            self.add_variable_input("by", lambda: 1.0)
            return x * self.add_variable_input("by", lambda: 1.0)

    with popxl.Ir().main_graph:
        for module, text in ((Lost(), "has no name"), (Again(), "a second time"), (Same(), "has a variable 'by'")):
            with pytest.raises(ModuleError, match=text):
                module.create_graph(SPEC)
        with pytest.raises(NotImplementedError, match="build method"):
            addons.Module().create_graph(SPEC)
        with pytest.raises(ValueError, match="grad_inlining_error"):
            addons.Module(grad_inlining_error="loud")
        _, graph = Scale().create_graph(SPEC)
        with pytest.raises(ValueError, match="Not enough inputs"):
            graph.bind(addons.NamedTensors(buy=popxl.constant(1.0))).call(popxl.constant(X))
        with pytest.raises(ValueError, match="Too many inputs"):
            graph.call(*[popxl.constant(X)] * 3)
        with pytest.raises(TypeError, match="not a graph of gradients"):
            _ = graph.grad_graph_info


def test_one_module_as_two_attributes_has_one_set_of_variables() -> None:
    class Tied(addons.Module):
        def __init__(self) -> None:
            self.a = self.b = Scale()

        def build(self, x: popxl.Tensor) -> popxl.Tensor:
            return self.a(x)

    with popxl.Ir().main_graph:
        assert Tied().create_graph(SPEC)[0].keys_flat() == ["a.by"]


class Square(addons.Module):
    """x², whose gradient is 100 times too large on purpose."""

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        self.doubled = x + x
        return x * x

    def build_grad(self, grad: popxl.Tensor) -> popxl.Tensor:
        return grad * self.forward_tensor(self.doubled) * 100.0


class Around(addons.Module):
    def __init__(self, use: Callable[[Square, popxl.Tensor], popxl.Tensor], how: str = "error") -> None:
        super().__init__()
        self.square, self.use = Square(grad_inlining_error=how), use

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        return self.use(self.square, x) + x


@pytest.mark.parametrize(
    ("module", "slope"),
    [
        (lambda: Square(), 200.0),
        (lambda: Around(lambda m, x: m.call_module(x)), 200.0),
        (lambda: Around(lambda m, x: m(x), "ignore"), 2.0),
    ],
)
def test_a_module_called_as_a_graph_has_its_own_gradient(module: Callable[[], addons.Module], slope: float) -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        made = module()
        _, graph = made.create_graph(SPEC)
        grad = addons.autodiff(graph)
        info = graph.call_with_info(popxl.constant(X))
        one = popxl.constant(np.ones((2, 3), np.float32))
        (dx,) = grad.call(one, args=grad.grad_graph_info.inputs_dict(info))
        found = run(ir, dx)[0]
    np.testing.assert_allclose(found, slope * X + isinstance(made, Around))


def test_a_gradient_of_its_own_is_not_lost_silently() -> None:
    with popxl.Ir().main_graph:
        _, graph = Around(lambda m, x: m(x)).create_graph(SPEC)
        with pytest.raises(GradientInliningError, match="Square has a build_grad"):
            addons.autodiff(graph)
        _, graph = Around(lambda m, x: m(x), "warn").create_graph(SPEC)
        with pytest.warns(UserWarning, match="Square has a build_grad"):
            addons.autodiff(graph)
        with pytest.raises(ModuleError, match="is for build_grad"):
            Square().forward_tensor(graph.graph.inputs[0])


# --- variables --------------------------------------------------------------------------------------------------------


def test_each_variable_takes_the_next_data() -> None:
    with popxl.Ir().main_graph:
        fact = VariableFactory([np.float64(1), np.float64(2)], name="v")
        assert fact.dtype is popxl.float32
        assert [fact.init(p).data.tolist() for p in ("a", "b")] == [1.0, 2.0]  # type: ignore[attr-defined]
        assert fact.init(empty=True).data == 0  # type: ignore[attr-defined]
        with pytest.raises(ValueError, match="at an end"):
            fact.init()
        for wrong in (np.zeros(3), "abc", 1.0):
            with pytest.raises(TypeError, match="a function or an iterable of arrays"):
                VariableFactory(wrong)  # type: ignore[arg-type]
        changing = VariableFactory([np.zeros(2), np.zeros(3)], name="v")
        changing.init()
        with pytest.raises(ValueError, match=re.escape("were [2], now [3]")):
            changing.init()


def test_variables_in_files_keep_what_the_files_hold(tmp_path: Path) -> None:
    with popxl.Ir().main_graph:
        fact = VariableFactory(lambda: np.arange(3), popxl.float32, "v")
        fact.init("a", memmap_dir=tmp_path)
        again = VariableFactory(lambda: np.zeros(3), popxl.float32, "v").init("a", empty=True, memmap_dir=tmp_path)
        assert again.data.tolist() == [0, 1, 2]  # type: ignore[attr-defined]
        with pytest.raises(ValueError, match="holds float32"):
            VariableFactory(lambda: np.zeros(4), popxl.float32, "v").init("a", empty=True, memmap_dir=tmp_path)


def test_data_by_group_of_replicas() -> None:
    ir = popxl.Ir(replication=4)
    with ir.main_graph:
        facts, _ = Scale().create_graph(SPEC)
        halves = ir.replica_grouping(group_size=2)
        fact = VariableFactory((np.full(2, float(n)) for n in range(8)), popxl.float32, "v", replica_grouping=halves)
        made = fact.init()
        assert made.data.tolist() == [[0, 0], [1, 1]]  # type: ignore[attr-defined]
        facts.insert("v", fact)
        assert facts.replica_groupings.to_dict() == {"by": None, "v": halves}


def test_missing_buffers_and_rows_are_named() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        facts, _ = Scale().create_graph(SPEC)
        buffers = addons.named_variable_buffers(facts, entries=2)
        tensors = facts.init_remote(buffers, 0, "layer0")
        with pytest.raises(TreeNameError, match="has no 'by'"):
            facts.init_remote(addons.NamedRemoteBuffers(), 1)
        with pytest.raises(ValueError, match="row 0"):
            facts.init_remote(buffers, 0)
        with pytest.raises(ValueError, match="has 2 entries, not 3"):
            addons.load_remote_graph(buffers, entries=3)
        with pytest.raises(ValueError, match="no variable 'buy'"):
            addons.named_variable_buffers(facts, shard_over_dict={"buy": 2})
        load, names = addons.load_remote_graph(buffers)
        loaded = addons.NamedTensors.pack(names, load.call(0))
        ops.add_(loaded.by, popxl.constant(1.0))
        store = addons.store_remote_graph(buffers)
        store.bind(loaded).call(1)
        (found,) = run(ir, addons.load_remote(buffers, 1).by)
    np.testing.assert_array_equal(found, [3, 3, 3])
    assert tensors.keys_flat() == ["by"]


def test_layers_called_by_number_have_variables_by_number() -> None:
    class Twice(addons.Module):
        def build(self, x: popxl.Tensor) -> popxl.Tensor:
            factories, layer = Linear(4).create_graph(x)
            for number in range(2):
                (x,) = layer.bind(self.add_variable_inputs(number, factories)).call(x)
            return x

    ir = popxl.Ir()
    data = np.arange(8, dtype=np.float32).reshape(2, 4)
    with ir.main_graph, popxl.transforms.merge_exchange(), popxl.transforms.io_tile_exchange():
        fed, stream, x = addons.host_load(data, popxl.float32, "x")
        factories, graph = Twice().create_graph(x)
        state = factories.init("layers")
        out = addons.host_store(graph.bind(state).call(x)[0])
    assert state.keys_flat() == ["0.bias", "0.weight", "1.bias", "1.weight"]
    assert state[1].bias.name == "layers.1.bias"
    with popxl.Session(ir, "ipu_model") as session:
        session.write_variables_data(
            {state[n].weight: np.eye(4, dtype=np.float32) * (n + 2) for n in (0, 1)}
            | {state[1].bias: np.ones(4, np.float32)}
        )
        np.testing.assert_array_equal(session.run({stream: fed})[out], data * 6 + 1)


def test_groups_of_names() -> None:
    ir = popxl.Ir(4)
    with ir.main_graph:
        pairs = ir.replica_grouping(group_size=2)
        groups = addons.NamedReplicaGrouping.build_groups(["a.w", "b"], pairs).insert("c", None)
        assert fill_none_group(groups, ir.replica_grouping()).map(lambda g: g.num_groups).to_dict() == {
            "a.w": 2,
            "b": 2,
            "c": 1,
        }
        assert not is_cross_instance(pairs)
        x = popxl.variable(np.ones((2,), np.float32))
        assert replicated_all_gather_strided(x, pairs).shape == (4,)
        assert replicated_all_gather_strided(x, pairs, output_shape="new_axis").shape == (2, 2)

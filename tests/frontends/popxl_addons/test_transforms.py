"""Transforms of graphs, streams by name and sessions of a task."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from abele.popxl_addons.layers import Linear
from abele.popxl_addons.ops.cross_entropy import cross_entropy
from abele.popxl_addons.optimizers.adam import AdamOptimizerStep

from abele import popxl
from abele import popxl_addons as addons
from abele.errors import FileFormatError
from abele.frontends.popxl_addons.errors import CheckpointError, TreeNameError
from abele.popxl import ops

RNG = np.random.default_rng(0)


class Digits(addons.Module):
    """Two layers and the loss, as the tutorials have them."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = Linear(8), Linear(3)

    def build(self, x: popxl.Tensor, labels: popxl.Tensor) -> tuple[popxl.Tensor, popxl.Tensor]:
        h = ops.gelu(self.fc1(x.reshape((x.shape[0], -1))))
        y = self.fc2(h)
        return cross_entropy(y, labels), y


@pytest.mark.parametrize("recompute", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_accumulated_gradients_and_adam_train_as_torch(recompute: bool, tmp_path: Path) -> None:
    updates, micro, batch = 3, 2, 4
    ir = popxl.Ir()
    ir.num_host_transfers = micro
    with ir.main_graph, popxl.in_sequence():
        inputs = addons.InputStreams(x=((batch, 2, 3), popxl.float32), labels=((batch,), popxl.int32))
        outputs = addons.OutputStreams(loss=((), popxl.float32))
        specs = [popxl.TensorSpec(s.shape, s.dtype) for s in inputs]
        facts, forward = Digits().create_graph(*specs)
        grad_facts, grad = addons.autodiff_with_accumulation(
            forward, forward.args.tensors, grads_provided=[forward.graph.outputs[0]]
        )
        grad = addons.recompute_graph(grad) if recompute else grad
        state = addons.NamedTensors(fwd=facts.init("fwd"), bwd=grad_facts.init("bwd"))

        def step(*_: Any) -> None:
            info = forward.bind(entered.fwd).call_with_info(ops.host_load(inputs.x), ops.host_load(inputs.labels))
            ops.host_store(outputs.loss, info.outputs[0])
            grad.bind(entered.bwd).call(popxl.constant(1.0), args=grad.grad_graph_info.inputs_dict(info))

        body = addons.GraphWithNamedArgs.empty(ir, "step")
        with body.graph, popxl.in_sequence():
            entered = state.map(lambda t: popxl.graph_input(t.shape, t.dtype, t.name, by_ref=True))
            step()
        body.args.update(entered)
        ops.repeat(body.graph, micro, inputs_dict=body.args.to_mapping(state))
        for name, weight in state.fwd.named_tensors.items():
            opt_facts, opt = AdamOptimizerStep().create_graph(
                weight, weight, lr=1e-2, weight_decay=0.0, first_order_dtype=popxl.float32, eps=1e-8
            )
            state.insert(f"opt.{name}", opt_facts.init(f"opt.{name}"))
            opt.bind(state.opt[name]).call(weight, state.bwd.accum[name])
        for tensor in state.bwd.tensors:
            ops.var_updates.accumulator_zero_(tensor)

    x = RNG.normal(size=(updates, micro, batch, 2, 3)).astype(np.float32)
    labels = RNG.integers(0, 3, (updates, micro, batch)).astype(np.int32)
    with addons.TaskSession(inputs, outputs, state, ir=ir) as session:
        before = session.get_named_tensors_data()
        session.add_session_state_info({"epoch": 3})
        session.save_checkpoint(tmp_path / "start")
        losses = [session.run({inputs.x: a, inputs.labels: b})[outputs.loss] for a, b in zip(x, labels, strict=True)]
        after = session.get_named_tensors_data()
        session.session_state = {}
        session.load_checkpoint(tmp_path / "start")
        assert session.session_state == {"epoch": 3}
        again = session.run({inputs.x: x[0], inputs.labels: labels[0]})[outputs.loss]
    np.testing.assert_array_equal(again, losses[0])

    w = {n: torch.tensor(a, requires_grad=True) for n, a in before.fwd.to_dict().items()}
    optimizer = torch.optim.Adam(w.values(), lr=1e-2, eps=1e-8)
    for a, b, found in zip(x, labels, losses, strict=True):
        optimizer.zero_grad()
        each = []
        for m in range(micro):
            h = F.gelu(torch.tensor(a[m]).flatten(1) @ w["fc1.weight"] + w["fc1.bias"], approximate="tanh")
            each.append(F.cross_entropy(h @ w["fc2.weight"] + w["fc2.bias"], torch.tensor(b[m]).long()))
        np.testing.assert_allclose(found, [loss.item() for loss in each], rtol=2e-4)
        torch.stack(each).mean().backward()
        optimizer.step()
    for name, tensor in w.items():
        np.testing.assert_allclose(after.fwd[name], tensor.detach(), atol=2e-4, err_msg=name)
    assert after.bwd.mean_accum_counter == 0


def test_a_pipeline_gives_each_micro_batch_all_stages_and_changes_variables_around() -> None:
    ir = popxl.Ir()
    ir.num_host_transfers = 4
    with ir.main_graph, popxl.in_sequence():
        source, sink = popxl.h2d_stream((2, 3), popxl.float32), popxl.d2h_stream((2, 3), popxl.float32)
        w, total = popxl.variable(np.eye(3) * 2, popxl.float32), popxl.variable(np.zeros((2, 3)), popxl.float32)
        shown = total.reshape_((6,))
        with addons.pipelined_execution(4) as pipeline:
            with pipeline.stage(0), popxl.ipu(0):
                x = ops.host_load(source)
                h = ops.relu(x @ w).copy_to_ipu(1)
            with pipeline.stage(1), popxl.ipu(1):
                y = h * pipeline.stash_and_restore_tensor(h, from_stage=0)
                y += 1
                back = y.copy_to_ipu(0)
                ops.host_store(sink, y)
            with pipeline.stage(2), popxl.ipu(0):
                ops.add_(shown, back.flatten())
        ops.add_(total, popxl.constant(100.0))
        with pytest.raises(ValueError, match="not in the current Graph"):
            ops.relu(y)
    addons.set_available_memory_proportion_by_ipu(ir, [0.3, 0.4])
    data = RNG.normal(size=(4, 2, 3)).astype(np.float32)
    with popxl.Session(ir) as session:
        found = session.run({source: data})[sink]
    wanted = np.maximum(2 * data, 0) ** 2 + 1
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    np.testing.assert_allclose(session.get_tensor_data(total), wanted.sum(0) + 100, rtol=1e-6)


def test_stages_lie_on_their_ipus_and_what_skips_stages_waits() -> None:
    ir, count, steps = popxl.Ir(), 3, 5
    ir.num_host_transfers = steps
    factors = [2.0, 3.0, 5.0]
    with ir.main_graph, popxl.in_sequence():
        source, sink = popxl.h2d_stream((2, 4), popxl.float32), popxl.d2h_stream((2, 4), popxl.float32)
        weights = []
        for number, factor in enumerate(factors):
            with popxl.ipu(number):
                weights.append(popxl.variable(np.eye(4) * factor, popxl.float32, name=f"weight{number}"))
        with addons.pipelined_execution(steps) as pipeline:
            with pipeline.stage(0), popxl.ipu(0):
                x = ops.host_load(source)
                far, h = x.copy_to_ipu(2), x @ weights[0]
            with pipeline.stage(1), popxl.ipu(1):
                h = h.copy_to_ipu(1) @ weights[1]  # the copy begins this stage, as some programs have it
            with pipeline.stage(2), popxl.ipu(2):
                y = h.copy_to_ipu(2) @ weights[2]
                y += far
                ops.host_store(sink, y)
    data = RNG.normal(size=(steps, 2, 4)).astype(np.float32)
    with popxl.Session(ir) as session:
        np.testing.assert_allclose(session.run({source: data})[sink], 31 * data, rtol=1e-5)
        np.testing.assert_allclose(session.run({source: -data})[sink], -31 * data, rtol=1e-5)
    graph = session._session.executable.graph
    for number in range(count):
        tiles = [v.mapping.tile for v in graph.variables if v.name.endswith(f"weight{number}")]
        assert set((np.concatenate(tiles) // (graph.num_tiles // count)).tolist()) == {number}


def staged(x: popxl.Tensor, steps: int, stages: tuple[int, ...]) -> None:
    with addons.pipelined_execution(steps) as pipeline:
        for number in stages:
            with pipeline.stage(number):
                ops.relu(x)


def test_wrong_pipelines_and_shares_are_refused() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(np.ones((2, 2)), popxl.float32)
        for steps, stages, text in (
            (1, (0, 1), "number of stages"),
            (4, (0, 2), "are 0, 1 and so on"),
            (0, (0,), "whole number of steps"),
        ):
            with pytest.raises(ValueError, match=text):
                staged(x, steps, stages)
        with addons.pipelined_execution(4) as pipeline, pipeline.stage(0):
            with pytest.raises(ValueError, match="inside of stage 0"):
                pipeline.stage(1).__enter__()
            with pytest.raises(ValueError, match="count from 0"):
                pipeline.stage(-1).__enter__()
        ops.matmul(x, x)
    for shares, text in (([0.0], "above 0"), ({1: 0.5}, "is on IPU 0"), ([2], "at most 1")):
        with pytest.raises(ValueError, match=text):
            addons.set_available_memory_proportion_by_ipu(ir, shares)
    with pytest.raises(ValueError, match="level of patterns"):
        addons.patterns.apply_pre_alias_patterns(ir, "most")


def test_shares_of_memory_reach_products_without_their_own() -> None:
    ir = popxl.Ir()
    with ir.main_graph, popxl.ipu(1):
        x = popxl.variable(np.ones((2, 2)), popxl.float32)
        ops.matmul(x, x)
        ops.matmul(x, x, available_memory_proportion=0.25)
    addons.set_available_memory_proportion_by_ipu(ir, [0.5, 0.125])
    hints = [o.hint.proportion for op in ir.main_graph.operations for o in op.block.ops if o.hint]
    assert hints == [0.125, 0.25]


def test_a_repeated_graph_hands_its_outputs_on() -> None:
    class Power(addons.Module):
        def build(self, x: popxl.Tensor) -> popxl.Tensor:
            return x * self.add_variable_input("by", lambda: np.float32(3), popxl.float32)

    ir = popxl.Ir()
    with ir.main_graph:
        facts, graph = Power().create_graph(popxl.TensorSpec((), popxl.float32))
        data, stream, x = addons.host_load(2.0, popxl.float32, "x")
        (y,) = addons.repeat_graph(graph, 4).bind(facts.init()).call(x)
        sink = addons.host_store(y)
    with popxl.Session(ir) as session:
        assert session.run({stream: data})[sink] == 2 * 3**4


@pytest.mark.slow
def test_seeds_differ_by_step_and_are_the_gradients_as_well() -> None:
    class Dropped(addons.Module):
        def build(self, x: popxl.Tensor, seed: popxl.Tensor) -> popxl.Tensor:
            w = self.add_variable_input("w", lambda: np.ones(64), popxl.float32)
            return ops.dropout(x * w, seed, 0.5)

    ir, steps = popxl.Ir(), 3
    ir.num_host_transfers = steps
    spec = popxl.TensorSpec((64,), popxl.float32)
    with ir.main_graph, popxl.in_sequence():
        xs, ys = popxl.h2d_stream((64,), popxl.float32), popxl.d2h_stream((64,), popxl.float32)
        dys, dxs = popxl.h2d_stream((64,), popxl.float32), popxl.d2h_stream((64,), popxl.float32)
        facts, graph = Dropped().create_graph(spec, popxl.TensorSpec((2,), popxl.uint32))
        grad = addons.autodiff(graph, grads_required=[graph.graph.inputs[0]])
        ahead, back = addons.batch_serialise_fwd_and_grad(
            graph,
            grad,
            graph.args,
            steps,
            {graph.graph.inputs[0]: xs, grad.graph.inputs[0]: dys},
            store_streams={graph.graph.outputs[0]: ys, grad.graph.outputs[0]: dxs},
            seed_input=graph.graph.inputs[1],
        )
        w = facts.init()
        ahead.graph.bind(w).call(popxl.constant(np.array([1, 2]), popxl.uint32))
        back.graph.bind(w).call()
    ones = np.ones((steps, 64), np.float32)
    with popxl.Session(ir) as session:
        made = session.run({xs: ones, dys: ones})
    masks = made[ys]
    np.testing.assert_array_equal(masks, made[dxs])
    assert set(np.unique(masks)) == {0.0, 2.0}
    assert not (masks[0] == masks[1]).all()


def test_handles_that_do_not_fit_are_refused() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        spec = popxl.TensorSpec((2,), popxl.float32)
        graph = addons.GraphWithNamedArgs(ir.create_graph(ops.relu, spec))
        x, y = graph.graph.inputs[0], graph.graph.outputs[0]
        buffer = addons.batch_serial_buffer(spec, 2, rows=2)
        for loads, stores, rows, text in (
            ({x: (buffer, 1)}, {}, 2, "rows 1 to 2 of 2 steps do not fit"),
            ({y: (buffer, 0)}, {}, 1, "not an input"),
            ({x: (buffer, -1)}, {}, 1, "do not fit"),
            ({}, {popxl.constant(1.0): (buffer, 0)}, 1, "neither an output nor an input"),
        ):
            with pytest.raises(ValueError, match=text):
                addons.batch_serialise(graph, 2, loads, store_buffers=stores, rows=rows)
        with pytest.raises(TypeError, match="a handle is"):
            addons.batch_serialise(graph, 2, {x: 3})  # type: ignore[dict-item]
        with pytest.raises(ValueError, match="io_mode"):
            addons.batch_serialise(graph, 2, {}, io_mode="fast")


# --- streams and sessions ---------------------------------------------------------------------------------------------


def test_streams_have_names() -> None:
    with popxl.Ir().main_graph:
        made = addons.InputStreams(a=((2,), popxl.float32), b=((), popxl.int32))
        assert made.a is made["a"] is made[0]
        assert [s.name for s in made] == made.keys() == ["a", "b"]
        assert "a" in made
        assert made.b in made
        with pytest.raises(TreeNameError, match="no stream 'c'"):
            _ = made.c
        with pytest.raises(TypeError, match=r"as \(shape, dtype\)"):
            addons.OutputStreams(a=popxl.float32)  # type: ignore[arg-type]


def session_of(**values: float) -> addons.TaskSession:
    ir = popxl.Ir()
    with ir.main_graph:
        state = addons.NamedTensors()
        for name, value in values.items():
            state.insert(name.replace("_", "."), popxl.variable(np.full(2, value), popxl.float32, name=name))
    return addons.TaskSession(state=state, ir=ir)


class Loader:
    """Data whose place is part of checkpoints."""

    place = 0

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place = state["place"]


def test_checkpoints_are_whole_and_name_what_is_missing(tmp_path: Path) -> None:
    session, other = session_of(a=1.0, b_c=2.0), session_of(a=5.0, b_d=6.0)
    session.dataloader = Loader()
    session.dataloader.place = 7
    folder = session.save_checkpoint(tmp_path / "one")
    assert session.save_checkpoint(folder) == folder
    assert [p.name for p in tmp_path.iterdir()] == ["one"]
    with pytest.raises(CheckpointError, match=r"no data for 1 variables: b\.d"):
        other.load_checkpoint(folder)
    assert other.get_named_tensors_data().a.tolist() == [5, 5]
    with pytest.warns(UserWarning, match=r"b\.d"):
        other.load_checkpoint(folder, report_missing="warn")
    other.dataloader = Loader()
    with warnings.catch_warnings(action="error"):
        other.load_checkpoint(folder, report_missing="none")
    assert other.dataloader.place == 7
    assert {n: a[0] for n, a in other.get_named_tensors_data().to_dict().items()} == {"a": 1, "b.d": 6}
    other.write_variables_data(addons.NamedTensorData.from_dict({"b": {"d": np.full(2, 9, np.float32)}}))
    with pytest.raises(TreeNameError, match=r"b\.e"):
        other.write_variables_data(addons.NamedTensorData.from_dict({"b.e": np.zeros(2, np.float32)}))
    session.load_from_session(other)
    with pytest.raises(ValueError, match="report_missing"):
        session.load_from_session(other, report_missing="maybe")
    with pytest.raises(TypeError, match="the state of a session"):
        session.add_session_state_info({"a": object()})


def test_folders_that_are_no_checkpoint_are_named(tmp_path: Path) -> None:
    session = session_of(a=1.0)
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileFormatError, match="cannot be written"):
        session.save_checkpoint(tmp_path / "file" / "inside")
    folder = session.save_checkpoint(tmp_path / "one")
    info = json.loads((folder / "session_state.json").read_text())
    for broken in ({}, info | {"names": ["../../a"]}, info | {"names": ["b"]}, [1]):
        (folder / "session_state.json").write_text(json.dumps(broken))
        with pytest.raises(CheckpointError, match="is no checkpoint"):
            session.load_checkpoint(folder)
    with pytest.raises(CheckpointError, match="is no checkpoint"):
        session.load_checkpoint(tmp_path / "two")
    wide = session_of(a=1.0)
    (tensor,) = wide.state.tensors
    np.save(session.save_checkpoint(folder) / "model" / "a.npy", np.zeros(3, np.float32))
    with pytest.raises(CheckpointError, match=r"float32\[3\] for a"):
        wide.load_checkpoint(folder)
    assert wide.get_tensor_data(tensor).tolist() == [1, 1]


def test_only_the_last_checkpoints_are_kept_where_that_is_asked(tmp_path: Path) -> None:
    ir = popxl.Ir()
    session = addons.TaskSession(ir=ir, max_checkpoints=2)
    (tmp_path / "step0").mkdir()
    for n in (1, 2, 3):
        session.save_checkpoint(tmp_path / f"step{n}")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step0", "step2", "step3"]

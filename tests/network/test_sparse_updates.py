"""Steps of tables by sums of rows: rows are added to the table, unless the sums are read or all rows change."""

import numpy as np
import pytest

from abele.distribution.changed_in_place import changed_in_place
from abele.expr.derivative import arg
from abele.network import NetworkBuilder, evaluate, verify
from abele.network.ops import build
from abele.network.passes import SparseUpdates
from abele.session import Session, Settings

w, g, r = arg(0), arg(1), arg(2)


def step(new, dtype="f32", *, read=False):
    """A network that moves a table of 20 rows by the gradients of some of them, and the table."""
    net = NetworkBuilder()
    table = net.buffer((20, 4), dtype, "table")
    index, rows, rate = net.input((6,), "i32", "index"), net.input((6, 4), dtype, "rows"), net.input((), dtype, "rate")
    net.output(build.reduce(net, build.look_up(net, table, index), [0, 1]))
    sums = build.add_rows(net, rows, index, 20)
    net.updates[table] = build.map_(net, new, [table, sums, rate], table.dtype)
    if read:
        net.output(build.reduce(net, sums, [0, 1]))
    return net.finish(), table


STEPS = {"rate": w - r * g, "number": w - 0.1 * g, "sum": -(g * 0.5) / r + w, "gradient": w + g}
OTHERS = {"decay": w - r * (g + 0.1 * w), "square": w - g * g, "rate of rows": w - g / (w + r)}


@pytest.mark.parametrize("name", STEPS)
def test_step__of_a_table__adds_rows_where_it_lies(name):
    net, _ = step(STEPS[name])
    made = SparseUpdates().run(net)
    verify(made)
    kinds = {op.kind for op in made.ops}
    assert "update_rows" in kinds
    assert "add_rows" not in kinds
    assert changed_in_place(made)


@pytest.mark.parametrize("name", OTHERS)
def test_step__that_changes_every_row__stays(name):
    net, _ = step(OTHERS[name])
    assert SparseUpdates().run(net) is net


def test_step__in_f16__or_whose_sums_are_read__stays():
    for net, _ in (step(STEPS["rate"], "f16"), step(STEPS["rate"], read=True)):
        assert SparseUpdates().run(net) is net


def test_step__on_the_device__gives_the_same():
    net, table = step(STEPS["rate"])
    rng = np.random.default_rng(0)
    held = rng.normal(size=table.shape).astype(np.float32)
    with Session.of(net, settings=Settings(fuse_maps=True), weights={"table": held.copy()}) as session:
        assert not any("write_back" in name for name in session.report.steps["name"])
        for _ in range(3):
            given = rng.integers(-1, 21, 6, dtype=np.int32), rng.normal(size=(6, 4)).astype("f4"), np.float32(0.3)
            given[0][:2] = 7
            wanted = evaluate(net, {table: held, **dict(zip(net.inputs, given, strict=True))}, precise=False)
            (found,) = session(*given)
            np.testing.assert_allclose(found, wanted[net.outputs[0]], rtol=1e-5, atol=1e-5)
            held = wanted[net.updates[table]]
        session.download()
        np.testing.assert_allclose(session.read("table"), held, rtol=1e-5, atol=1e-6)

"""Functions whose arguments are the fields of a record."""

from __future__ import annotations

import inspect
from dataclasses import KW_ONLY, dataclass
from typing import Any

import pytest
from poplibs_kit import system_of

from abele import Graph, Sequence, Tensor
from abele.errors import TypeMismatchError
from abele.poplibs import gcl, popops
from abele.poplibs.popnn import augru, ctc, gru, lstm
from abele.poplibs.poputil.arguments import hints_of
from abele.poplibs.poputil.guard import guarded
from abele.poplibs.poputil.record_calls import takes_fields_of


@dataclass(frozen=True)
class _Scaling:
    graph: Graph
    x: Tensor
    prog: Sequence
    factor: float = 2.0
    _: KW_ONLY
    name: str = ""


@takes_fields_of(_Scaling)
def scale(call: _Scaling) -> tuple[str, float]:
    """Scales."""
    return call.name, call.factor


@takes_fields_of(_Scaling, name="grow")
def scale_more(call: _Scaling) -> float:
    """Scales more."""
    return call.factor + 1


def test_takes_fields_of__signature__is_that_of_the_fields() -> None:
    expected = "(graph: 'Graph', x: 'Tensor', prog: 'Sequence', factor: 'float' = 2.0, *, name: 'str' = 'scale')"
    assert str(inspect.signature(scale)) == f"{expected} -> 'tuple[str, float]'"
    assert (scale.__name__, scale.__doc__, scale.__module__) == ("scale", "Scales.", __name__)
    assert inspect.signature(scale_more).parameters["name"].default == "grow"


def test_takes_fields_of__call__gives_defaults_positions_and_names() -> None:
    graph = Graph(system_of(4))
    x, prog = graph.variable("f32", (2,), name="x"), Sequence()
    assert scale(graph, x, prog) == ("scale", 2.0)
    assert scale(graph, x, prog=prog, factor=3.0, name="mine") == ("mine", 3.0)
    assert scale_more(graph, x, prog, 4.0) == 5.0


def test_takes_fields_of__guard__refuses_by_the_types_of_the_fields() -> None:
    graph = Graph(system_of(4))
    x, prog = graph.variable("f32", (2,), name="x"), Sequence()
    looked_at: Any = guarded(scale)
    assert looked_at(graph, x, prog) == ("scale", 2.0)
    with pytest.raises(TypeMismatchError, match=r"^scale: prog must be given"):
        looked_at(graph, x)
    with pytest.raises(TypeMismatchError, match=r"^scale: x must be a tensor, got str 'x'"):
        looked_at(graph, "x", prog)
    with pytest.raises(TypeMismatchError, match=r"^scale: facto is no argument"):
        looked_at(graph, x, prog, facto=1.0)
    assert hints_of(scale)["x"] is Tensor


def test_takes_fields_of__record_without_a_name__is_refused() -> None:
    @dataclass(frozen=True)
    class Nameless:
        graph: Graph

    def function(call: Nameless) -> None:
        """Does nothing."""

    with pytest.raises(TypeError, match="no keyword-only field called name"):
        takes_fields_of(Nameless)(function)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lstm.lstm_fwd, "graph params state input weights prog | options=None name='lstm_fwd'"),
        (
            lstm.lstm_bwd,
            "graph params state intermediates weights input output_gradient prog | cell_state_gradient=None "
            "options=None name='lstm_bwd'",
        ),
        (
            lstm.lstm_bwd_with_wu,
            "graph params state intermediates weights input output_gradient prog | cell_state_gradient=None "
            "options=None name='lstm_bwd_with_wu'",
        ),
        (lstm.lstm_wu, "graph params gradients input prog | options=None name='lstm_wu'"),
        (gru.gru_fwd, "graph params state input weights prog | attention=None options=None name='gru_fwd'"),
        (
            gru.gru_bwd_with_wu,
            "graph params state intermediates weights input output_gradient prog | attention=None options=None "
            "name='gru_bwd_with_wu'",
        ),
        (
            augru.au_gru_bwd,
            "graph params state intermediates weights input attention output_gradient prog | options=None "
            "name='au_gru_bwd'",
        ),
        (gru.gru_wu, "graph params gradients input prog | options=None name='gru_wu'"),
        (gcl.all_reduce_cross_replica, "graph data op prog group=ALL | options=None name='all_reduce'"),
        (
            gcl.all_reduce_cross_replica_to_destination,
            "graph data destination op prog group=ALL | options=None name='all_reduce'",
        ),
        (gcl.reduce_scatter_cross_replica, "graph data op prog group=ALL | options=None name='reduce_scatter'"),
        (gcl.all_gather_cross_replica, "graph data prog group=ALL | options=None name='all_gather'"),
        (gcl.broadcast_cross_replica, "graph data prog group=ALL root=0 | options=None name='broadcast'"),
        (
            popops.multi_update_max,
            "graph tensor slices offsets dims sizes prog plan=None | options=None name='multi_update_max'",
        ),
        (
            popops.grouped_multi_update,
            "graph tensor slices offsets dims sizes prog plan=None | operation='none' scale=1.0 options=None "
            "name='grouped_multi_update'",
        ),
        (
            popops.grouped_multi_update_mul,
            "graph tensor slices offsets dims sizes prog plan=None | options=None name='grouped_multi_update_mul'",
        ),
        (gcl.all_reduce_within_replica, "graph data op prog | options=None name='all_reduce_within'"),
        (
            ctc.calc_ctc_loss_logits,
            "graph out_type logits labels data_lengths label_lengths prog blank_class plan | options=None "
            "name='ctc_loss'",
        ),
        (
            ctc.calc_loss_and_gradient_log_probabilities,
            "graph out_type log_probs labels data_lengths label_lengths prog blank_class plan | options=None "
            "name='ctc_loss'",
        ),
    ],
)
def test_signatures__of_families__are_those_that_programs_call(function: Any, expected: str) -> None:
    shown, by_name = [], False
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not by_name:
            shown, by_name = [*shown, "|"], True
        default = "ALL" if parameter.default == gcl.CommGroup() else repr(parameter.default)
        shown.append(name if parameter.default is inspect.Parameter.empty else f"{name}={default}")
    assert " ".join(shown) == expected

"""CTC loss and its gradient."""

from __future__ import annotations

from abele.graph import Graph, Sequence
from abele.numerics import u32
from abele.poplibs.popnn import ctc
from abele.validation.parameters import Parameters


def build(graph: Graph, given: Parameters) -> Sequence:
    """Loss and gradient of ``batch`` sequences of ``max-time`` steps, of logits or of log-probabilities."""
    steps, batch, classes = given.integer("max-time", 1), given.integer("batch", 1), given.integer("num-classes", 2)
    labels = given.integer("max-label-length", 1)
    in_type, out_type = given.text("in-type", "float"), given.text("out-type", "float")
    plan = ctc.plan(
        graph, in_type, out_type, batch_size=batch, max_time=steps, max_label_length=labels, num_classes=classes
    )
    data = ctc.create_data_input(graph, in_type, batch, steps, classes, plan)
    truth = ctc.create_labels_input(graph, u32, batch, labels, plan)
    times = graph.map(graph.variable(u32, (batch,), name="data_lengths"), 0)
    counts = graph.map(graph.variable(u32, (batch,), name="label_lengths"), 0)
    logits = given.flag("logit-inputs")
    calc = ctc.calc_loss_and_gradient_logits if logits else ctc.calc_loss_and_gradient_log_probabilities
    prog = Sequence()
    calc(
        graph,
        out_type,
        data,
        labels=truth,
        data_lengths=times,
        label_lengths=counts,
        prog=prog,
        blank_class=0,
        plan=plan,
    )
    return prog

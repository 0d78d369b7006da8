"""Results of each pass of the planner for small programs, as text."""

from __future__ import annotations

import pytest
from kernels_kit import form_after
from small_programs import PROGRAMS
from syrupy.assertion import SnapshotAssertion

from abele.kernels.plan.passes import PIPELINE, dump_passes, form_text
from abele.kernels.target import HostTarget

CPU = HostTarget(lanes=16, registers=32)
"""Target of the plans, whatever runs the tests."""

SHOWN = {
    "normalise": ("half_histogram",),
    "split_dims": ("training_step", "samples_in_blocks", "convolution"),
    "set_once": ("convolution",),
    "round_stores": (),  # results are rounded to nearest; tests/kernels/plan/test_round_stores.py has others
    "compute_once": (),  # tests/kernels/tasks/test_compute_once.py has programs with equal operands along a dim
    "join_dims": ("samples_in_blocks",),
    "join_samples": ("outputs_in_groups",),
    "fuse_tasks": ("training_step", "softmax"),
    "read_unwidened": (),  # the CPU of these plans multiplies no pairs of bf16
    "drop_unread": ("training_step",),
    "widen_operands": (),
    "order_dims": ("grains",),
    "number_draws": (),  # as round_stores
    "rematerialise": ("attention",),
    "fuse_outer_loops": ("attention", "training_step"),
    "choose_samples": ("training_step", "long_product"),
    "order_stages": ("training_step",),
    "group_rows": ("token_norm", "softmax"),
    "lay_out_blocks": ("training_step",),
    "block_samples": ("token_norm", "training_step", "softmax", "attention"),
    "inline_rows": ("token_norm",),
    "skip_keys": ("packed_shares",),
    "divide_rows": ("causal_shares",),
    "split_sums": ("narrow_gradient",),
    "copy_operands": ("convolution",),
    "split_reductions": ("long_product",),
    "group_leaves": ("convolution",),
    "stream_stores": ("large_map",),
    "lower_tasks": ("training_step", "softmax"),
    "merge_dims": ("training_step", "samples_in_blocks"),
    "shift_arrays": ("long_product",),
    "choose_schedules": ("training_step", "convolution", "long_product", "softmax", "attention"),
    "generate_code": ("samples_in_blocks",),
    "assemble": ("training_step", "convolution"),
}
"""For each pass, the programs in which it has something to do."""


@pytest.mark.parametrize(("name", "program"), [(name, p) for name, programs in SHOWN.items() for p in programs])
def test_pass__on_a_small_program__makes_this_form(name: str, program: str, snapshot: SnapshotAssertion) -> None:
    made = PROGRAMS[program]()
    assert form_text(form_after(name, made.buffers, made.calls, CPU)) == snapshot


def test_shown__passes__are_all_of_the_pipeline() -> None:
    assert list(SHOWN) == [step.name for step in PIPELINE]


def test_pipeline__as_text__names_every_pass_and_what_it_does(snapshot: SnapshotAssertion) -> None:
    assert "\n".join(map(str, PIPELINE)) == snapshot


@pytest.mark.parametrize("program", ["training_step", "softmax"])
def test_dump__of_a_small_program__tells_what_each_pass_did(program: str, snapshot: SnapshotAssertion) -> None:
    made = PROGRAMS[program]()
    assert dump_passes(made.buffers, made.calls, after="choose_schedules", target=CPU) == snapshot

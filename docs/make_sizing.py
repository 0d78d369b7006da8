"""Table of ``docs/sizing.md``: what tokens of models cost on machines. ``python docs/make_sizing.py`` prints it.

Each row is compiled: minutes for the largest. Names of rows restrict it: ``python docs/make_sizing.py smollm2-135m``.
"""

from __future__ import annotations

import sys

from abele.llm.sizing import Costing, DecodePlan, Workload, model_named
from abele.llm.sizing.text import BINDS
from abele.machine import systems
from abele.report.energy import amount_text
from abele.session import Settings

ROWS = (
    ("smollm2-135m", "bow", DecodePlan(group=1)),
    ("llama-2-7b", "bow-pod16", DecodePlan(group=16, streamed=True)),
    ("llama-2-7b", "bow-pod64", DecodePlan(group=16, stages=2)),
    ("llama-2-13b", "bow-pod64", DecodePlan(group=8, stages=8)),
    ("llama-2-70b", "bow-pod64", DecodePlan(group=16, streamed=True)),
)
"""Model, machine and spread."""
HEADINGS = ("model", "machine", "spread", "a token", "tokens/s", "weights per IPU", "fullest tile", "binds")


def row(name: str, system: str, plan: DecodePlan) -> tuple[str, ...]:
    """Cells of a row: batch 1, a prompt of 512 tokens, 256 new ones, float16."""
    config = model_named(name)
    costing = Costing(config, systems.get(system), Settings())
    cost = costing.decode(plan, Workload(config=config, prompt=512, new=256, batch=1), with_prefill=False)
    full = cost.fullest
    return (
        name,
        system,
        f"{plan.stages} x {plan.group}" + (", streamed" if plan.streamed else ""),
        amount_text(cost.step_seconds, "s"),
        f"{cost.tokens_per_second:,.4g}",
        "in streaming memory" if plan.streamed else amount_text(full.weights, "B"),
        f"{full.fullest / full.available:.0%}",
        BINDS[cost.binds],
    )


def main(names: list[str]) -> None:
    """Print the table, or the rows of some models."""
    print("| " + " | ".join(HEADINGS) + " |\n" + "|---" * len(HEADINGS) + "|")
    for name, system, plan in ROWS:
        if not names or name in names:
            print("| " + " | ".join(row(name, system, plan)) + " |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

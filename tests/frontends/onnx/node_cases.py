"""ONNX's own cases of nodes: models with inputs and the results that they have to give.

``python tests/frontends/onnx/node_cases.py [part of a name …]`` runs them and lists those that differ; ``--native``
compiles each, without it networks are interpreted.
"""

from __future__ import annotations

import argparse
import collections
import fnmatch
import functools
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from abele import onnx as abele_onnx
from abele.errors import AbeleError
from abele.frontends.onnx.backend import specialised
from abele.frontends.onnx.model import converted, received
from abele.network.interpreter import Interpreter

EXCLUDED = {
    "drawn at random": ("test_bernoulli*", "test_training_dropout*"),
    "strings, sequences and optionals": (
        "test_*sequence*",
        "test_*optional*",
        "test_*string*",
        "test_*strnorm*",
        "test_tfidf*",
        "test_regex*",
        "test_image_decoder*",
        "test_split_to_sequence*",
        "test_identity_opt*",
        "test_loop16*",
        "test_if_opt*",
        "test_cast_*STRING*",
        "test_equal_string*",
        "test_loop13_seq*",
        "test_if_seq*",
    ),
    "sizes that depend on values": ("test_nonzero*", "test_compress*", "test_unique*", "test_nonmaxsuppression*"),
    "types that the device lacks": (
        "test_*INT4*",
        "test_*UINT4*",
        "test_*INT2*",
        "test_*FLOAT4*",
        "test_*E8M0*",
        "test_*int4*",
        "test_*int2*",
        "test_*float4*",
        "test_*E4M3FN_*",
        "test_*E4M3FN",
        "test_*E5M2_*",
        "test_*E5M2",
        "test_*e4m3fn*",
        "test_*e5m2*",
    ),
    "complex numbers": ("test_dft*", "test_stft*"),
    "trees, and optimisers of another domain": (
        "test_ai_onnx_ml*",
        "test_adam*",
        "test_adagrad*",
        "test_momentum*",
        "test_nesterov*",
    ),
}
"""Cases that are left out by name, and why."""


@functools.cache
def cases() -> dict[str, Any]:
    """All cases by name."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in collect_testcases(None)}


def excluded(name: str) -> str | None:
    """Why a case is left out; None if it is not."""
    for why, patterns in EXCLUDED.items():
        if any(fnmatch.fnmatchcase(name, p) for p in patterns):
            return why
    return None


def arrays(given: Sequence[Any]) -> list[Any]:
    """Data of a case as arrays."""
    return [onnx.numpy_helper.to_array(a) if isinstance(a, onnx.TensorProto) else np.asarray(a) for a in given]


def run(case: Any, *, native: bool) -> list[Any]:
    """Results for a case's inputs."""
    names = [v.name for v in case.model.graph.input]
    given = dict(zip(names, arrays(case.data_sets[0][0]), strict=False))
    model, fed = specialised(case.model, given)
    return list((model.infer(fed) if native else interpreted(model, fed)).values())


def interpreted(model: abele_onnx.Model, fed: dict[str, Any]) -> dict[str, Any]:
    """Results of a model's network, interpreted."""
    net = model.network
    values = dict(zip(net.inputs, converted(model.name, model.inputs, fed), strict=True))
    values |= {v: np.asarray(model.weights[v.name]) for v in (*net.parameters, *net.buffers)}
    values = {v: np.asarray(a).astype(v.dtype.np) for v, a in values.items()}
    if net.seed is not None:
        values[net.seed] = np.zeros(2, np.uint32)
    with np.errstate(all="ignore"):
        Interpreter(precise=False).ops(net.ops, values)
    return received(model.outputs, [values[v] for v in net.outputs])


def differs(case: Any, made: Sequence[Any]) -> str | None:
    """Difference of results from a case's, in words; None where they are near enough."""
    wanted = arrays(case.data_sets[0][1])
    if len(made) != len(wanted):
        return f"{len(made)} results, not {len(wanted)}"
    for got, right in zip(made, wanted, strict=True):
        if got.shape != right.shape:
            return f"shape {got.shape}, not {right.shape}"
        if got.dtype != right.dtype:
            return f"type {got.dtype}, not {right.dtype}"
        wide, exact = (np.asarray(a, np.float64) for a in (got, right))
        rtol = max(case.rtol, 1e-3)
        if right.dtype.itemsize == 2 and right.dtype.kind not in "iu":
            rtol = max(rtol, 2.0**-7 if right.dtype.name == "bfloat16" else 2.0**-10)
        if not np.allclose(wide, exact, rtol=rtol, atol=max(case.atol, 1e-6), equal_nan=True):
            return f"off by {np.nanmax(np.abs(wide - exact)):.3g}"
    return None


def main() -> None:
    """Run cases and list those that differ."""
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--native", action="store_true")
    parser.add_argument("--all", action="store_true", help="also those that are left out")
    chosen = parser.parse_args()
    begin, counts, failures = time.time(), collections.Counter[str](), collections.defaultdict(list)
    for name, case in cases().items():
        if chosen.parts and not any(p in name for p in chosen.parts):
            continue
        if excluded(name) and not chosen.all:
            counts["left out"] += 1
            continue
        counts["tried"] += 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                why = differs(case, run(case, native=chosen.native))
        except AbeleError as error:
            why = f"{type(error).__name__}: {error.message}"
        except Exception as error:
            why = f"!! {type(error).__name__}: {error}"
        if why is not None:
            failures[case.model.graph.node[-1].op_type].append((name, why))
        else:
            counts["passed"] += 1
    for kind, several in sorted(failures.items(), key=lambda e: -len(e[1])):
        print(f"{kind} ({len(several)})")
        for name, why in several[:6]:
            print(f"    {name}: {why.splitlines()[0][:150]}")
    print(dict(counts), f"{100 * counts['passed'] / max(counts['tried'], 1):.1f} %", f"{time.time() - begin:.0f} s")


if __name__ == "__main__":
    main()

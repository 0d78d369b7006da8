"""The scripts of ``examples/popxl`` do what they say, with small settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from support.pages import load_script

pytest.importorskip("sklearn", reason="needs scikit-learn")

SCRIPTS = Path(__file__).resolve().parents[2] / "examples" / "popxl"


def test_mnist__a_few_epochs__classifies_most_images() -> None:
    assert load_script(SCRIPTS / "mnist.py", "popxl_mnist").main(epochs=3, count=800) > 0.85


BERT = load_script(SCRIPTS / "bert.py", "popxl_bert")


def torch_bert(config: Any, w: dict[str, torch.Tensor], arrays: dict[str, Any], at: tuple[int, int]) -> torch.Tensor:
    """Loss of one micro-batch of one replica, by the names that the program gives its variables."""
    words, positions, labels = (torch.tensor(arrays[name][at]).long() for name in ("words", "positions", "labels"))

    def linear(name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])

    x = w["embeddings.words.weight"][words].view(-1, config.length, config.hidden) + w["embeddings.positions.weight"]
    x = norm("embeddings.norm", x)
    for n in range(config.layers):
        a, f = f"layers.{n}.attention", f"layers.{n}.feed_forward"
        q, k, v = (t.unflatten(-1, (config.heads, -1)).transpose(1, 2) for t in linear(f"{a}.qkv", x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)
        x = norm(f"{a}.norm", x + linear(f"{a}.output", mixed))
        wide = F.gelu(linear(f"{f}.intermediate", x), approximate="tanh")
        x = norm(f"{f}.norm", x + linear(f"{f}.output", wide))
    x = F.gelu(linear("head.dense", x.flatten(0, 1)[positions]), approximate="tanh")
    logits = norm("head.norm", x) @ w["embeddings.words.weight"].T + w["head.bias"]
    return F.cross_entropy(logits, labels)


def torch_training(config: Any, first: dict[str, Any], data: Iterator[dict[str, Any]], updates: int) -> Any:
    """Losses of updates, and the weights after them."""
    weights = {name: torch.tensor(a, requires_grad=True) for name, a in first.items() if ".fwd." in name}
    plain = {name.replace(".fwd.", "."): w for name, w in weights.items()}
    adam = torch.optim.AdamW(weights.values(), eps=config.eps, weight_decay=config.weight_decay)
    losses = []
    for update, arrays in zip(range(updates), data, strict=False):
        for group in adam.param_groups:
            group["lr"] = BERT.rate(config, update)
        adam.zero_grad()
        loss = torch.stack(
            [torch_bert(config, plain, arrays, at) for at in np.ndindex(config.accumulation, config.replicas)]
        ).mean()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return losses, {name: w.detach().numpy() for name, w in weights.items()}


SMALL = {"hidden": 8, "vocabulary": 16, "length": 4, "masked": 2, "micro_batch": 1, "accumulation": 3}


@pytest.mark.parametrize(
    ("kind", "updates", "sizes"),
    [
        ("phased", 3, SMALL),
        pytest.param("pipelined", 3, SMALL, marks=pytest.mark.slow),
        pytest.param("phased", 20, {}, marks=pytest.mark.slow),
        pytest.param("pipelined", 20, {}, marks=pytest.mark.slow),
        pytest.param("phased", 20, {"layers": 4, "replicas": 3}, marks=pytest.mark.slow),
        pytest.param("pipelined", 20, {"layers": 3, "replicas": 1}, marks=pytest.mark.slow),
    ],
)
def test_bert__some_updates__has_the_losses_of_torch(kind: str, updates: int, sizes: dict[str, int]) -> None:
    np.random.seed(1)
    config = BERT.Config(**sizes)
    program = BERT.PROGRAMS[kind](config)
    with program.session() as session:
        first = session.get_named_tensors_data().to_dict()
        found = BERT.train(program, session, BERT.batches(config), range(updates))
        after = session.get_named_tensors_data().to_dict()
    losses, weights = torch_training(config, first, BERT.batches(config), updates)
    np.testing.assert_allclose(found, losses, atol=2e-5)
    assert losses[-1] < losses[0]
    for name, expected in weights.items():
        np.testing.assert_allclose(after[name], expected, atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_bert__checkpoint_of_phases__goes_on_in_a_pipeline(tmp_path: Path) -> None:
    config, losses = BERT.Config(), {}
    phased, pipelined = BERT.Phased(config), BERT.Pipelined(config)
    data = BERT.batches(config)
    with phased.session() as session:
        BERT.train(phased, session, data, range(5))
        session.save_checkpoint(tmp_path / "five")
        rest = [next(data) for _ in range(5)]
        losses["phased"] = BERT.train(phased, session, iter(rest), range(5, 10))
    with pipelined.session() as session:
        session.load_checkpoint(tmp_path / "five", report_missing="error")
        losses["pipelined"] = BERT.train(pipelined, session, iter(rest), range(5, 10))
    np.testing.assert_allclose(losses["phased"], losses["pipelined"], atol=2e-5)

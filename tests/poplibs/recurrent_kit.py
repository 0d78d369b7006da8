"""Recurrent layers in float64, their gradients by PyTorch."""

from __future__ import annotations

import numpy as np
import torch


def leaf(array):
    return torch.tensor(np.asarray(array, np.float64), requires_grad=True)


def run_lstm(x, state, weights, order, lengths=None):
    """Outputs and final states; gates by their names in ``order``."""
    (h, c), (wi, wo, bias) = state, weights
    outputs = []
    for t in range(len(x)):
        sums = {name: x[t] @ wi[k] + h @ wo[k] + bias[k] for k, name in enumerate(order)}
        new_c = sums["forget"].sigmoid() * c + sums["input"].sigmoid() * sums["cell"].tanh()
        new_h = sums["output"].sigmoid() * new_c.tanh()
        if lengths is None:
            h, c = new_h, new_c
            outputs.append(h)
        else:
            runs = torch.tensor([[t < n] for n in lengths])
            outputs.append(torch.where(runs, new_h, 0))
            h, c = torch.where(runs, new_h, h), torch.where(runs, new_c, c)
    return torch.stack(outputs), h, c


def run_gru(x, h, weights, order, *, after=False, attention=None, lengths=None):
    """Outputs and final state; gates by their names in ``order``."""
    wi, wo, bias = weights
    of_input, of_state = (bias[:, 0], bias[:, 1]) if after else (bias, torch.zeros_like(bias))
    at = {name: k for k, name in enumerate(order)}
    outputs = []
    for t in range(len(x)):
        left = {name: x[t] @ wi[k] + of_input[k] for name, k in at.items()}
        right = {name: h @ wo[k] + of_state[k] for name, k in at.items()}
        reset, update = ((left[n] + right[n]).sigmoid() for n in ("reset", "update"))
        candidate = (left["cell"] + (reset * right["cell"] if after else (reset * h) @ wo[at["cell"]])).tanh()
        if attention is not None:
            update = update * (1 - attention[:, t : t + 1])
        new = update * h + (1 - update) * candidate
        if lengths is None:
            h = new
            outputs.append(h)
        else:
            runs = torch.tensor([[t < n] for n in lengths])
            outputs.append(torch.where(runs, new, 0))
            h = torch.where(runs, new, h)
    return torch.stack(outputs), h

"""Draw pictures/exponents.png, exponents of a language model in training: python docs/make_exponents_picture.py.

A transformer of two layers learns the characters of the standard library in float16, with a scale of the loss of 2^10.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from abele import poptorch
from abele.garden.language import CHARACTERS, windows
from abele.garden.sources import standard_library, without_tables

PICTURE = Path(__file__).parent / "pictures" / "exponents.png"
STEPS, BATCH, LENGTH, WIDTH = 120, 32, 48, 64


class Characters(nn.Module):
    """A transformer that guesses the next character, with its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(len(CHARACTERS), WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.guess = nn.Linear(WIDTH, len(CHARACTERS))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """The loss, of text [batch, length]."""
        made = self.layers(self.embed(text[:, :-1]), mask=self.hidden())
        return nn.functional.cross_entropy(self.guess(made).flatten(0, 1).float(), text[:, 1:].flatten())

    @staticmethod
    def hidden() -> torch.Tensor:
        """Mask that is added to scores of later characters, [length, length]."""
        return torch.triu(torch.full((LENGTH, LENGTH), -1e4), 1).half()


def main() -> None:
    """Train and draw."""
    torch.manual_seed(0)
    text = torch.from_numpy(windows(without_tables(standard_library()), STEPS * BATCH, 0))[:, : LENGTH + 1].long()
    model = Characters().half()
    opts = poptorch.Options().showCompilationProgressBar(False).modelName("characters in float16")
    opts.Abele.recordExponents("gradient/*weight", "*.linear?.weight", "activation_gradients", every=2)
    optimiser = poptorch.optim.AdamW(model.parameters(), lr=2e-3, eps=1e-7, loss_scaling=1024.0)
    training = poptorch.trainingModel(model, opts, optimiser)
    for batch in text.split(BATCH):
        loss = training(batch)
    print(f"loss {float(loss):.3f}")
    report = training.report()
    print(report.exponents.text())
    report.plot("exponents", top=24).savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    main()

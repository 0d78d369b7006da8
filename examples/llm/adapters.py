"""Teach a language model Python's documentation by adapters of low rank, and see a held-out part become likelier.

The text is the docstrings of the standard library, so nothing is downloaded. Without a model to start from, a small one
learns half of the documents by all of its weights, on the device; then adapters learn the other half.

    python examples/llm/adapters.py
    python examples/llm/adapters.py --model smollm2.gguf --length 128
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Sequence

import torch

from abele.garden.sources import held_out_split, standard_library
from abele.llm.config import LlamaConfig
from abele.llm.loading import load
from abele.llm.models.llama import Llama
from abele.llm.tuning import Tuned, add_lora, text_rows, tune

TARGETS = ("query", "value")


class Bytes:
    """A tokenizer whose tokens are the bytes of UTF-8."""

    def encode(self, text: str) -> Sequence[int]:
        """The bytes."""
        return text.encode()


def docstrings(most: int) -> list[str]:
    """Docstrings of modules, classes and functions, each of two lines or more."""
    found: list[str] = []
    for module in standard_library():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node)
                if text and "\n" in text:
                    found.append(text)
        if len(found) >= most:
            break
    return found[:most]


def main(
    *, model: str | None = None, length: int = 128, updates: int = 40, rank: int = 8, documents: int = 400
) -> Tuned:
    """Adapters for a model; returns what they did."""
    torch.manual_seed(0)
    texts, held_out = held_out_split(docstrings(documents), share=0.1, seed=0)
    if model is None:
        tokenizer = Bytes()
        sizes = {"hidden": 64, "heads": 4, "kv_heads": 2, "head_size": 16, "wide": 192, "positions": length}
        network = Llama(LlamaConfig(vocabulary=256, layers=2, **sizes))
        half = len(texts) // 2
        rows = text_rows(tokenizer, texts[:half], length=length)
        print(
            "all weights:",
            tune(network, rows, text_rows(tokenizer, held_out, length=length), updates=updates, batch=8, lr=3e-3),
        )
        texts = texts[half:]
    else:
        network, tokenizer = load(model)
    add_lora(network, targets=TARGETS, rank=rank)
    rows, others = text_rows(tokenizer, texts, length=length), text_rows(tokenizer, held_out, length=length)
    tuned = tune(
        network, rows, others, updates=updates, batch=8 if model is None else 1, lr=3e-3 if model is None else 3e-4
    )
    print(f"adapters of rank {rank}:", tuned)
    return tuned


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a GGUF file or a folder of Hugging Face's")
    for name, default in (("length", 128), ("updates", 40), ("rank", 8), ("documents", 400)):
        parser.add_argument(f"--{name}", type=int, default=default)
    main(**vars(parser.parse_args()))

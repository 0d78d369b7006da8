"""Fine-tuning: adapters of low rank, rows of packed text, training on the device and perplexity."""

from abele.llm.tuning.lora import LoraLinear, add_lora, load_lora, merge_lora, save_lora
from abele.llm.tuning.rows import TextRows, text_rows
from abele.llm.tuning.train import PackedModel, Tuned, perplexity, tune

__all__ = [
    "LoraLinear",
    "PackedModel",
    "TextRows",
    "Tuned",
    "add_lora",
    "load_lora",
    "merge_lora",
    "perplexity",
    "save_lora",
    "text_rows",
    "tune",
]

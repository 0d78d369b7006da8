"""Networks of texts and sounds: those of transformers, of small width and full structure."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from model_zoo.entry import Batch, Fields, ModelEntry
from model_zoo.vision import torchvision_models

WORDS = 1000
LENGTH = 64
WIDTH = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}


def transformers_models() -> Any:
    """``transformers``, also where torchvision's own operators were built for another PyTorch."""
    if importlib.util.find_spec("torchvision") is not None:
        torchvision_models()
    import transformers

    return transformers


def words(length: int = LENGTH, *, classes: int | None = None) -> Callable[[int, torch.Generator], Batch]:
    """Random words, and the same as labels or a class for each text."""

    def make(count: int, generator: torch.Generator) -> Batch:
        text = torch.randint(3, WORDS, (count, length), generator=generator)
        return text, text if classes is None else torch.randint(0, classes, (count,), generator=generator)

    return make


def masked_words(count: int, generator: torch.Generator) -> Batch:
    """Random words, a mask that hides the end of some texts, and a class for each."""
    text = torch.randint(3, WORDS, (count, LENGTH), generator=generator)
    lengths = torch.randint(LENGTH // 2, LENGTH + 1, (count, 1), generator=generator)
    return text, (torch.arange(LENGTH) < lengths).long(), torch.randint(0, 2, (count,), generator=generator)


def two_texts(count: int, generator: torch.Generator) -> Batch:
    """A text and the one to be made of it."""
    return tuple(torch.randint(3, WORDS, (count, LENGTH // 2), generator=generator) for _ in range(2))


def hugging_face(
    name: str, config: str, model: str, names: tuple[str, ...], data: Any, batch: int = 4, **options: Any
) -> ModelEntry:
    """A model of transformers with its own loss."""

    def network() -> nn.Module:
        transformers = transformers_models()

        made = getattr(transformers, config)(**options)
        made.use_cache = False
        return Fields(getattr(transformers, model)(made), names)

    return ModelEntry(name, batch, network, data, ("transformers",))


class Clip(nn.Module):
    """CLIP with its loss over the pairs of one batch."""

    def __init__(self) -> None:
        super().__init__()
        transformers = transformers_models()

        text = {**WIDTH, "vocab_size": WORDS, "max_position_embeddings": 32, "eos_token_id": WORDS - 1}
        image = {**WIDTH, "image_size": 64, "patch_size": 16}
        self.network = transformers.CLIPModel(
            transformers.CLIPConfig(text_config=text, vision_config=image, projection_dim=128)
        )

    def forward(self, text: Tensor, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Similarities and loss."""
        result = self.network(input_ids=text, pixel_values=pixels, return_loss=True)
        return result.logits_per_text, result.loss


def pairs(count: int, generator: torch.Generator) -> Batch:
    """Texts that end in the last word, and images."""
    text = torch.randint(3, WORDS - 1, (count, 32), generator=generator)
    text[:, -1] = WORDS - 1
    return text, torch.randn(count, 3, 64, 64, generator=generator)


def spoken(count: int, generator: torch.Generator) -> Batch:
    """Spectrograms, and the words spoken."""
    sound = torch.randn(count, 80, 128, generator=generator)
    return sound, torch.randint(3, WORDS, (count, 16), generator=generator)


class Wav2Vec2(nn.Module):
    """wav2vec 2.0 as a classifier of sounds."""

    def __init__(self) -> None:
        super().__init__()
        transformers = transformers_models()

        config = transformers.Wav2Vec2Config(
            **WIDTH,
            vocab_size=32,
            conv_dim=(64,) * 7,
            num_conv_pos_embeddings=32,
            apply_spec_augment=False,
            layerdrop=0.0,
            classifier_proj_size=64,
            num_labels=8,
        )
        self.network = transformers.Wav2Vec2ForSequenceClassification(config)

    def forward(self, sound: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and loss."""
        result = self.network(input_values=sound, labels=labels)
        return result.logits, result.loss


def sounds(count: int, generator: torch.Generator) -> Batch:
    """A second of noise, and a class."""
    return torch.randn(count, 8000, generator=generator), torch.randint(0, 8, (count,), generator=generator)


_TEXT = {"vocab_size": WORDS, "max_position_embeddings": 128}
_LABELLED = ("input_ids", "labels")
_DECODER = {**WIDTH, **_TEXT, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

LANGUAGE = (
    hugging_face(
        "bert",
        "BertConfig",
        "BertForSequenceClassification",
        ("input_ids", "attention_mask", "labels"),
        masked_words,
        **WIDTH,
        **_TEXT,
    ),
    hugging_face(
        "roberta",
        "RobertaConfig",
        "RobertaForMaskedLM",
        _LABELLED,
        words(),
        **WIDTH,
        **_TEXT,
    ),
    hugging_face(
        "distilbert",
        "DistilBertConfig",
        "DistilBertForSequenceClassification",
        ("input_ids", "attention_mask", "labels"),
        masked_words,
        dim=256,
        n_layers=4,
        n_heads=4,
        hidden_dim=1024,
        **_TEXT,
    ),
    hugging_face(
        "albert",
        "AlbertConfig",
        "AlbertForSequenceClassification",
        _LABELLED,
        words(classes=2),
        embedding_size=64,
        **WIDTH,
        **_TEXT,
    ),
    hugging_face(
        "electra", "ElectraConfig", "ElectraForSequenceClassification", _LABELLED, words(classes=2), **WIDTH, **_TEXT
    ),
    hugging_face(
        "gpt2",
        "GPT2Config",
        "GPT2LMHeadModel",
        _LABELLED,
        words(),
        vocab_size=WORDS,
        n_positions=128,
        n_embd=256,
        n_layer=4,
        n_head=4,
        bos_token_id=1,
        eos_token_id=2,
    ),
    hugging_face("llama", "LlamaConfig", "LlamaForCausalLM", _LABELLED, words(), **_DECODER),
    hugging_face("mistral", "MistralConfig", "MistralForCausalLM", _LABELLED, words(), sliding_window=32, **_DECODER),
    hugging_face("qwen2", "Qwen2Config", "Qwen2ForCausalLM", _LABELLED, words(), **_DECODER),
    hugging_face("gemma", "GemmaConfig", "GemmaForCausalLM", _LABELLED, words(), head_dim=64, **_DECODER),
    hugging_face(
        "opt",
        "OPTConfig",
        "OPTForCausalLM",
        _LABELLED,
        words(),
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        ffn_dim=1024,
        word_embed_proj_dim=256,
        **_TEXT,
    ),
    hugging_face(
        "t5",
        "T5Config",
        "T5ForConditionalGeneration",
        _LABELLED,
        two_texts,
        vocab_size=WORDS,
        d_model=256,
        d_kv=64,
        d_ff=1024,
        num_layers=3,
        num_heads=4,
        decoder_start_token_id=0,
    ),
    hugging_face(
        "bart",
        "BartConfig",
        "BartForConditionalGeneration",
        _LABELLED,
        two_texts,
        d_model=256,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=1024,
        decoder_ffn_dim=1024,
        **_TEXT,
    ),
    hugging_face(
        "whisper",
        "WhisperConfig",
        "WhisperForConditionalGeneration",
        ("input_features", "labels"),
        spoken,
        vocab_size=WORDS,
        d_model=256,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=1024,
        decoder_ffn_dim=1024,
        max_source_positions=64,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    ),
    ModelEntry("wav2vec2", 2, Wav2Vec2, sounds, ("transformers",)),
    ModelEntry("clip", 4, Clip, pairs, ("transformers",)),
)

"""Recipes for the rows of tasks: language models, BERT, question answering, classification, speech, graphs."""

from abele.packing.tasks.bert import Masking, bert_pretraining, bert_pretraining_recipe, masked_words, token_labels
from abele.packing.tasks.fine_tuning import (
    AnswerSpans,
    best_spans,
    classification,
    classification_recipe,
    squad,
    squad_recipe,
)
from abele.packing.tasks.graphs import as_one_graph, graph_recipe, graph_shape, graphs_of
from abele.packing.tasks.language import (
    language_model,
    language_model_recipe,
    next_token_labels,
    own_token_labels,
    shifted_labels,
)
from abele.packing.tasks.speech import speech, speech_recipe

__all__ = [
    "AnswerSpans",
    "Masking",
    "as_one_graph",
    "bert_pretraining",
    "bert_pretraining_recipe",
    "best_spans",
    "classification",
    "classification_recipe",
    "graph_recipe",
    "graph_shape",
    "graphs_of",
    "language_model",
    "language_model_recipe",
    "masked_words",
    "next_token_labels",
    "own_token_labels",
    "shifted_labels",
    "speech",
    "speech_recipe",
    "squad",
    "squad_recipe",
    "token_labels",
]

"""CTC inference: the most likely labels of sequences of class probabilities, by beam search.

``plan`` says how the work is spread, ``create_data_input`` lays the data out for it, and the decoders take either
log-probabilities or logits. Names are those of PopLibs in snake_case; its camelCase names work too.
"""

from abele.poplibs.popnn.ctc_infer.decode import beam_search_decoder_log_probabilities, beam_search_decoder_logits
from abele.poplibs.popnn.ctc_infer.plan import Plan, create_data_input, plan
from abele.poplibs.poputil.guard import guarded_functions
from abele.poplibs.poputil.names import camel_aliases

__all__ = [
    "Plan",
    "beam_search_decoder_log_probabilities",
    "beam_search_decoder_logits",
    "create_data_input",
    "plan",
]

globals().update(guarded_functions(globals(), __all__[1:]))
globals().update(camel_aliases(globals(), __all__[1:]))

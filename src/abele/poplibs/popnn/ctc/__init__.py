"""CTC loss: how likely labels are, over all their alignments with a sequence of class probabilities, and its gradient.

``plan`` says how the work is spread, ``create_data_input`` and ``create_labels_input`` lay the operands out for it.
Names are those of PopLibs in snake_case; its camelCase names work too.
"""

from abele.poplibs.popnn.ctc.loss import (
    calc_ctc_loss_log_probabilities,
    calc_ctc_loss_logits,
    calc_loss_and_gradient_log_probabilities,
    calc_loss_and_gradient_logits,
)
from abele.poplibs.popnn.ctc.plan import Plan, create_data_input, create_labels_input, plan
from abele.poplibs.poputil.guard import guarded_functions
from abele.poplibs.poputil.names import camel_aliases

__all__ = [
    "Plan",
    "calc_ctc_loss_log_probabilities",
    "calc_ctc_loss_logits",
    "calc_loss_and_gradient_log_probabilities",
    "calc_loss_and_gradient_logits",
    "create_data_input",
    "create_labels_input",
    "plan",
]

globals().update(guarded_functions(globals(), __all__[1:]))
globals().update(camel_aliases(globals(), __all__[1:]))
calcCTCLossLogProbabilities = calc_ctc_loss_log_probabilities  # noqa: N816
calcCTCLossLogits = calc_ctc_loss_logits  # noqa: N816

"""One step of a GRU: gates and state, forwards and backwards."""

from __future__ import annotations

from abele.graph import Tensor, concat
from abele.graph.program import Sequence
from abele.poplibs import popops
from abele.poplibs.popnn.recurrent.cell import Columns, Setting, Weights, gates_of, put
from abele.poplibs.popnn.recurrent.host_loop import clone_in_rows, host_map, host_product, host_sum
from abele.poplibs.popnn.recurrent.loop import SequenceLoop
from abele.poplibs.popnn.recurrent.lstm_cell import activate, slope
from abele.poplibs.popnn.recurrent.params import GruParams
from abele.poplibs.popops.expr import Expr, PlaceHolder, _1, _2, _3

KEPT = ("reset", "update", "cell", "previous_output", "state_product")
"""Values kept of every step for the backward pass; the last only where the reset follows the product."""


class GruCell:
    """The cell of a GRU; see :class:`~abele.poplibs.popnn.recurrent.cell.Cell`. Its state is the output.

    Reset and update come from one product; the candidate from another, of the state that was reset before, or from two
    products of which that of the state is reset after.
    """

    def __init__(self, setting: Setting, params: GruParams, *, has_input: bool) -> None:
        self.setting, self.params, self.has_input = setting, params, has_input
        hidden = {"output": params.hidden}
        inputs = {"input": params.input_size} if has_input else {}
        after = {} if params.reset_after else {"reset_output": params.hidden}
        self.columns = Columns(setting.units, {**hidden, **inputs, **after}, "operand")
        names = tuple(inputs)
        self.gates = setting.product(self.columns, ("output", *names), 2, "gates")
        # What is multiplied by the candidate's weights decides the number of products: a state that was reset before
        # joins the input in one; otherwise the state's product must stay apart from the input's until the reset has
        # scaled it.
        if params.reset_after:
            self.candidates = [setting.product(self.columns, ("output",), 1, "state_candidate")]
            self.candidates += [setting.product(self.columns, names, 1, "input_candidate")] if names else []
        else:
            self.candidates = [setting.product(self.columns, (*names, "reset_output"), 1, "candidate")]
        self.order = [params.cell_order.index(name) for name in params.cells]
        self.score: Tensor | None = None
        self.score_gradient: Tensor | None = None
        self._biases: Tensor | None = None
        self._bias_sums: list[Tensor | None] = [None, None]

    @property
    def kept(self) -> int:
        """Slots that are kept of a step."""
        return len(KEPT) if self.params.reset_after else len(KEPT) - 1

    def arrange(self, weights: Weights, prog: Sequence, *, forward: bool) -> None:
        """Take the weights; see the protocol."""
        self._biases = gates_of(weights.biases, self.order)
        parts = [weights.output, *([weights.input] if self.has_input and weights.input is not None else [])]
        gates = [gates_of(p, self.order[:2]) for p in parts]
        candidates = [gates_of(p, self.order[2:]) for p in parts]
        # The reset state is the last of the operand's columns, so its weights come last.
        groups = [[c] for c in candidates] if self.params.reset_after else [[*candidates[1:], candidates[0]]]
        for product, group in zip([self.gates, *self.candidates], [gates, *groups], strict=True):
            if forward:
                product.arrange(group, prog)
            else:
                product.turn(group, prog)

    def forward(self, loop: SequenceLoop, states: list[Tensor], step: Tensor, given: Tensor | None) -> None:
        """One step; see the protocol."""
        (output,) = states
        reset, update, candidate, previous = step[0], step[1], step[2], step[3]
        put(loop, output, self.columns.of("output"))
        sums = self.gates.forward(loop.prog)
        before = None if given is None else gates_of(given, self.order)
        biases = self._gate_biases()
        self._add_bias(loop, sums, biases, None if before is None else before[:2])
        gate = self.params.recurrent_activation
        loop.map([activate(gate, _1), activate(gate, _2)], [sums[0], sums[1]], [reset, update], "gates")
        total = self._candidate(loop, output, step, None if before is None else before[2:])
        loop.map([activate(self.params.activation, _1)], [total[0]], [candidate], "candidate")
        loop.copy([output], [previous], "keep_output")
        share, scores = self._share(_1, 4)
        new = PlaceHolder(2) + share * (PlaceHolder(3) - _2)
        loop.map([new], [update, candidate, output, *scores], [output], "new_output")

    def backward(self, loop: SequenceLoop, step: Tensor, gradients: list[Tensor], deltas: Tensor) -> Tensor | None:
        """One step back; see the protocol."""
        (output,) = gradients
        # Back through the step in reverse: the new state, the candidate, the reset that it used, then the gates' common
        # product. `output` becomes the gradient of the old state bit by bit.
        self._output_gradients(loop, step, output, deltas)
        if self.params.reset_after:
            inputs = self._back_after(loop, step, output, deltas)
        else:
            inputs = self._back_before(loop, step, output, deltas)
        if not self.has_input:
            return None
        total = loop.graph.clone(inputs[0], name="input_gradient")
        loop.map([_1 + _2], inputs, [total], "add_input_gradients")
        return total

    def put_deltas(self, loop: SequenceLoop, step: Tensor, deltas: Tensor) -> None:
        """Bring gradients of the gates to the products; see the protocol."""
        self._put_candidate(loop, step, deltas)
        self._put_gates(loop, deltas)

    def accumulate(self, loop: SequenceLoop, step: Tensor, deltas: Tensor, number: int, together: int) -> None:
        """Add the gradients of the weights; see the protocol."""
        # The columns held other operands in the steps back: the step's state is put there once more, as is the reset
        # state, which is cheaper to compute again than to keep.
        put(loop, step[3], self.columns.of("output"))
        if not self.params.reset_after:
            was_reset = self.setting.units.state("reset_output")
            loop.map([_1 * _2], [step[0], step[3]], [was_reset], "reset_output")
            put(loop, was_reset, self.columns.of("reset_output"))
        for product in (self.gates, *self.candidates):
            product.accumulate(loop.prog, loop.before, number, together)
        sums = self._bias_sums
        sums[0] = self.setting.add_biases(loop, sums[0], deltas)
        if self.params.reset_after:
            sums[1] = self.setting.add_biases(loop, sums[1], self._state_deltas(loop, step, deltas)[None])

    def gradients(self, prog: Sequence) -> Weights:
        """The gradients of the weights."""
        output, *inputs = self.gates.gradients(prog)
        if self.params.reset_after:
            parts = [product.gradients(prog)[0] for product in self.candidates]
        else:
            *more, last = self.candidates[0].gradients(prog)
            parts = [last, *more]
        # From the order that the products have to the one that the caller's weights have.
        back = [self.params.cells.index(name) for name in self.params.cell_order]
        joined = [gates_of(concat([a, b], 0), back) for a, b in zip([output, *inputs], parts, strict=True)]
        assert self._bias_sums[0] is not None
        biases = self.setting.in_layer_type(self._bias_sums[0], prog)
        if self._bias_sums[1] is not None:
            of_state = self.setting.in_layer_type(self._bias_sums[1], prog)
            of_state = gates_of(concat([biases[n : n + 1] for n in self.order[:2]] + [of_state], 0), back)
            biases = concat([biases.expand_dims(1), of_state.expand_dims(1)], 1)
        return Weights(joined[1] if inputs else None, joined[0], biases)

    def take_deltas(self, deltas: Tensor) -> None:
        """Nothing: each product reads the gradients of some gates."""

    def host_gradients(self, prog: Sequence, kept: Tensor, deltas: Tensor, gradients: Weights) -> None:
        """Write the gradients of output weights and biases; see the protocol."""
        reset, before, candidate = kept[:, 0], kept[:, 3], self.order[2]
        for gate in self.order[:2]:
            host_product(prog, "tbk,tbu->ku", before, deltas[:, gate], gradients.output[gate], "gate_gradient")
        into = gradients.output[candidate]
        if not self.params.reset_after:
            was_reset = clone_in_rows(before, "reset_output")
            host_map(prog, [_1 * _2], [reset, before], [was_reset], "reset_output")
            host_product(prog, "tbk,tbu->ku", was_reset, deltas[:, candidate], into, "candidate_gradient")
            host_sum(prog, "tgbu->gu", deltas, gradients.biases, "bias_gradient")
            return
        of_state = clone_in_rows(before, "state_deltas")
        host_map(prog, [_1 * _2], [deltas[:, candidate], reset], [of_state], "state_deltas")
        host_product(prog, "tbk,tbu->ku", before, of_state, into, "candidate_gradient")
        # The biases of the state's products are those of the input's, but for the candidate.
        host_sum(prog, "tgbu->gu", deltas, gradients.biases[:, 0], "bias_gradient")
        host_sum(prog, "tbu->u", of_state, gradients.biases[candidate, 1], "state_bias_gradient")

    def _gate_biases(self) -> list[Tensor]:
        """Biases of reset and update, [2, 1, units] each: one tensor, or two."""
        assert self._biases is not None
        biases = self._biases[:2]
        return [biases[:, n : n + 1] for n in (0, 1)] if self.params.reset_after else [biases.expand_dims(1)]

    def _add_bias(self, loop: SequenceLoop, sums: Tensor, biases: list[Tensor], given: Tensor | None) -> None:
        operands = [sums, *biases, *([] if given is None else [given])]
        total: Expr = _1
        for n in range(1, len(operands)):
            total = total + PlaceHolder(n + 1)
        loop.map([total], operands, [sums], "add_bias")

    def _candidate(self, loop: SequenceLoop, output: Tensor, step: Tensor, given: Tensor | None) -> Tensor:
        """Input of the candidate's non-linearity, [1, batch, units]."""
        assert self._biases is not None
        bias = self._biases[2:]
        if not self.params.reset_after:
            was_reset = self.setting.units.state("reset_output")
            loop.map([_1 * _2], [step[0], output], [was_reset], "reset_output")
            put(loop, was_reset, self.columns.of("reset_output"))
            total = self.candidates[0].forward(loop.prog)
            self._add_bias(loop, total, [bias.expand_dims(1)], given)
            return total
        of_state = self.candidates[0].forward(loop.prog)
        loop.map([_1 + _2], [of_state[0], bias[0, 1:2]], [step[4]], "add_state_bias")
        total = self.candidates[1].forward(loop.prog) if given is None else given
        made = total if given is None else self.setting.units.stack(1, "candidate_sum")
        products = _1 + _2 + _3 * PlaceHolder(4)
        loop.map([products], [total[0], bias[0, :1], step[0], step[4]], [made[0]], "add_reset")
        return made

    def _share(self, update: Expr, number: int) -> tuple[Expr, list[Tensor]]:
        """The share of the old state in the new one: the update gate, less the attention's part of it."""
        if self.score is None:
            return update, []
        return update * (1.0 - PlaceHolder(number)), [self.score.expand_dims(1)]

    def _output_gradients(self, loop: SequenceLoop, step: Tensor, output: Tensor, deltas: Tensor) -> None:
        """Gradients of update and candidate, and the part of the state's that passes by the gates."""
        _4, _5 = PlaceHolder(4), PlaceHolder(5)
        share, scores = self._share(_2, 5)
        weight = 1.0 - _5 if scores else None
        through = _1 * (_4 - _3)
        gate, candidate = self.params.recurrent_activation, self.params.activation
        operands = [output, step[1], step[2], step[3], *scores]
        if scores:
            self._score_gradient(loop, operands)
        into = [deltas[self.order[1]], deltas[self.order[2]], output]
        # From h' = h·s + c·(1 - s), with s the share: the slopes of update and candidate, and what passes straight to
        # the old state.
        expressions = [
            slope(gate, _2, through if weight is None else through * weight),
            slope(candidate, _3, _1 * (1.0 - share)),
            _1 * share,
        ]
        loop.map(expressions, operands, into, "output_gradients")

    def _score_gradient(self, loop: SequenceLoop, operands: list[Tensor]) -> None:
        assert self.score is not None
        products = self.setting.units.state("score_products")
        loop.map([_1 * (_3 - PlaceHolder(4)) * _2], operands[:4], [products], "score_products")
        made = popops.reduce(loop.graph, products, [1], "ADD", loop.prog, name="score_gradient")
        self.score_gradient = loop.graph.clone(self.score, name="score_gradient")
        put(loop, made, self.score_gradient)

    def _back_before(self, loop: SequenceLoop, step: Tensor, output: Tensor, deltas: Tensor) -> list[Tensor]:
        self._put_candidate(loop, step, deltas)
        *inputs, of_reset = self.candidates[0].backward(loop.prog)
        mine = self.setting.units.state("reset_gradient")
        put(loop, of_reset, mine)
        reset = slope(self.params.recurrent_activation, _1, _2 * _3)
        operands = [step[0], mine, step[3], output]
        into = [deltas[self.order[0]], output]
        loop.map([reset, PlaceHolder(4) + _2 * _1], operands, into, "reset_gradient")
        return [*inputs, *self._back_gates(loop, output, deltas)]

    def _back_after(self, loop: SequenceLoop, step: Tensor, output: Tensor, deltas: Tensor) -> list[Tensor]:
        reset = slope(self.params.recurrent_activation, _1, _2 * _3)
        operands = [step[0], deltas[self.order[2]], step[4]]
        loop.map([reset], operands, [deltas[self.order[0]]], "reset_gradient")
        self._put_candidate(loop, step, deltas)
        self._add_state_gradient(loop, output, self.candidates[0].backward(loop.prog)[0])
        inputs = self.candidates[1].backward(loop.prog) if self.has_input else []
        return [*inputs, *self._back_gates(loop, output, deltas)]

    def _back_gates(self, loop: SequenceLoop, output: Tensor, deltas: Tensor) -> list[Tensor]:
        self._put_gates(loop, deltas)
        of_state, *inputs = self.gates.backward(loop.prog)
        self._add_state_gradient(loop, output, of_state)
        return inputs

    def _add_state_gradient(self, loop: SequenceLoop, output: Tensor, gradient: Tensor) -> None:
        mine = self.setting.units.state("state_gradient")
        put(loop, gradient, mine)
        loop.map([_1 + _2], [output, mine], [output], "add_state_gradient")

    def _put_gates(self, loop: SequenceLoop, deltas: Tensor) -> None:
        self.gates.put_deltas(gates_of(deltas, self.order[:2]), loop.prog)

    def _put_candidate(self, loop: SequenceLoop, step: Tensor, deltas: Tensor) -> None:
        if self.params.reset_after:
            self.candidates[0].put_deltas(self._state_deltas(loop, step, deltas)[None], loop.prog)
        if len(self.candidates) == 1 + self.params.reset_after:
            self.candidates[-1].put_deltas(deltas[self.order[2]][None], loop.prog)

    def _state_deltas(self, loop: SequenceLoop, step: Tensor, deltas: Tensor) -> Tensor:
        """Gradient of the state's product, where the reset follows it."""
        made = self.setting.units.state("state_deltas")
        loop.map([_1 * _2], [deltas[self.order[2]], step[0]], [made], "state_deltas")
        return made

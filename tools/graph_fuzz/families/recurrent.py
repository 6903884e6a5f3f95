"""Recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.graph_fuzz.growth import Growth, Held, Impossible
from tools.graph_fuzz.registry import generates

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = (
    ("Relu", "Tanh", "Sigmoid", "Softsign", "Softplus"),
    ("Elu", "LeakyRelu", "ThresholdedRelu"),
    ("ScaledTanh", "Affine", "HardSigmoid"),
)
"""Functions without a number, with one, with two.  Numbers are always given: implementations do
not agree on the defaults."""


@generates("RNN", "GRU", "LSTM")
def recurrent(g: Growth, name: str) -> Held | list[Held]:
    x = g.tensor(g.types(name), 3, lambda v: 0 < v.size <= 600 and max(v.shape) <= 17,
                 lambda: g.shape(3, extent=9, most=300))  # fmt: skip
    layout = g.draw.pick([None, 0, 1]) if g.opset >= 14 and g.draw.chance(0.3) else None
    batch_axis, time_axis = (0, 1) if layout else (1, 0)
    batch, time, width = x.shape[batch_axis], x.shape[time_axis], x.shape[2]
    if not x.size:
        raise Impossible
    hidden = g.draw.pick([1, 3, 4, 5, 8])
    direction = g.draw.pick([None, "forward", "reverse", "bidirectional"])
    ways, gates = 2 if direction == "bidirectional" else 1, GATES[name]
    weights = g.scaled(x.dtype, (ways, gates * hidden, width), 16, 0.9)
    again = g.scaled(x.dtype, (ways, gates * hidden, hidden), 16, 0.9)
    bias = g.fresh(x.dtype, (ways, 2 * gates * hidden), 0.9) if g.draw.chance(0.6) else None
    lengths = None
    if g.draw.chance(0.25):
        lengths = g.operand(g.draw.rng.integers(1, time + 1, batch).astype(np.int32))
    state = (batch, ways, hidden) if layout else (ways, batch, hidden)
    states = [g.same(x.dtype, state) if g.draw.chance(0.5) else None
              for _ in range(2 if name == "LSTM" else 1)]  # fmt: skip
    peepholes = None
    if name == "LSTM" and g.draw.chance(0.25):
        peepholes = g.fresh(x.dtype, (ways, 3 * hidden), 0.9)
    given: dict[str, Any] = {"hidden_size": hidden, "direction": direction, "layout": layout}
    if g.draw.chance(0.25):
        count = {"RNN": 1, "GRU": 2, "LSTM": 3}[name] * ways
        numbers = g.draw.pick([0, 0, 1, 2])
        given["activations"] = [g.draw.pick(FUNCTIONS[numbers]) for _ in range(count)]
        for attribute in ("activation_alpha", "activation_beta")[:numbers]:
            given[attribute] = [g.draw.pick([0.25, 0.5]) for _ in range(count)]
    if g.draw.chance(0.15):
        given["clip"] = 1.5
    if name == "GRU":
        given["linear_before_reset"] = g.draw.pick([None, 0, 1])
    if name == "LSTM":
        given["input_forget"] = g.draw.pick([None, None, 0, 1])
    outputs = g.draw.integer(1, 3 if name == "LSTM" else 2)
    more = (*states, peepholes) if name == "LSTM" else tuple(states)
    return g.emit(name, x, weights, again, bias, lengths, *more, outputs=outputs, **given)

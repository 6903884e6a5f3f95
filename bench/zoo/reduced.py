"""The networks in small: every kind of layer of the full ones, narrow, on small images, few times.

They are for tests: compiled in a second or so, and run by the interpreter in less.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import onnx

from zoo import convolutional, sequential

TOKENS = 1000
"""How many different tokens there are."""

REDUCED: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "resnet50": partial(convolutional.resnet50, image=64, narrow=4, blocks=(2, 1, 1, 2)),
    "mobilenet_v2": partial(
        convolutional.mobilenet_v2, image=64, narrow=2, blocks=(1, 2, 1, 1, 1, 1, 1)
    ),
    "resnet18_3d": partial(convolutional.resnet18_3d, frames=8, image=32, narrow=8),
    "dcgan": partial(convolutional.dcgan, narrow=8),
    "bert_base": partial(
        sequential.bert_base, layers=2, tokens=24, vocabulary=TOKENS, width=96, heads=4
    ),
    "resnext50": partial(
        convolutional.resnext50, groups=4, width=16, image=64, narrow=4, blocks=(2, 1, 1, 2)
    ),
    "nasnet_a": partial(convolutional.nasnet_a, image=64, narrow=2, stages=2, cells=1),
    "nasrnn": partial(sequential.nasrnn, hidden=72, length=3),
    "squeezenet": partial(convolutional.squeezenet, image=64, narrow=4),
    "inception_v3": partial(convolutional.inception_v3, image=107, narrow=8),
    "vit_tiny": partial(sequential.vit_tiny, layers=2, image=64, width=48, classes=50),
    "llama_prefill": partial(
        sequential.llama_prefill, layers=2, tokens=24, width=96, heads=6, shared=2, inner=160
    ),
}
"""By the names of the full ones."""

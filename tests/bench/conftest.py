"""A model small enough to be measured in no time."""

from __future__ import annotations

import pytest

from constrain.bench.shapes import Shape


@pytest.fixture
def tiny_shape() -> Shape:
    return Shape(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        vocab_size=96,
    )

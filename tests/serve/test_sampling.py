"""Sampling settings of requests."""

from __future__ import annotations

from typing import Any

import pytest

from constrain import LLM
from constrain.serve import Models
from constrain.serve.protocol.completions import CompletionRequest
from constrain.serve.sampling import make_options


@pytest.mark.parametrize(
    ("fields", "is_shared"),
    [
        ({"seed": 2, "max_tokens": 3}, True),
        ({"logit_bias": {"7": 2.0}}, False),
        ({"top_p": 0.5}, False),
        ({"presence_penalty": 0.5}, False),
    ],
)
def test_requests_share_settings_if_their_fields_are_the_same(
    llm: LLM, fields: dict[str, Any], is_shared: bool
) -> None:
    model = Models.of({"tiny": llm}).by_name["tiny"]
    first, second = (
        make_options(CompletionRequest(model="tiny", prompt="a", **{"logit_bias": {"5": 1.0}, **each}), model, 4)
        for each in ({}, fields)
    )
    assert (first.settings is second.settings) is is_shared

from __future__ import annotations

from typing import Any

import torch

from constrain.model import Intervention
from constrain.model.forward_context import ForwardContext


def test_states_can_be_seen_and_changed_around_a_module(llama: Any, ids: torch.Tensor) -> None:
    model = llama.load()
    plain = model.forward(ids)
    seen: list[torch.Tensor] = []

    def look(x: torch.Tensor, context: ForwardContext) -> torch.Tensor:
        seen.append(x.clone())
        assert context.attention.full.cos.shape[1] == ids.shape[1]
        return x

    inner = model.modules[3]
    model.modules[3] = Intervention(inner, pre_forward=look, post_forward=look)
    assert model.modules[3].key == inner.key and model.modules[3].parameters() == inner.parameters()
    torch.testing.assert_close(model.forward(ids), plain)
    assert len(seen) == 2 and not torch.equal(*seen)

    model.modules[3] = Intervention(inner, post_forward=lambda x, context: torch.zeros_like(x))
    assert not torch.allclose(model.forward(ids), plain)

"""The model with the layers of exllamav2, and its creation by command-line options."""

from __future__ import annotations

from typing import Any

from constrain import model as native
from constrain import model_init
from constrain.compat.exllamav2.layers import adopt
from constrain.model.modules import Module
from constrain.tokenizer import ExLlamaV2Tokenizer


class ExLlamaV2(native.ExLlamaV2):
    """:class:`constrain.model.ExLlamaV2`, whose layers have the methods of :class:`LayerMethods`."""

    def __init__(self, config: native.ExLlamaV2Config, lazy_load: bool = False) -> None:
        """See :class:`constrain.model.ExLlamaV2`."""
        super().__init__(config, lazy_load)

    def _adopt(self, modules: list[Module]) -> None:
        super()._adopt(modules)
        adopt(self)


def init(*args: Any, **kwargs: Any) -> tuple[ExLlamaV2, ExLlamaV2Tokenizer]:
    """See :func:`constrain.model_init.init`; the model is of the class here."""
    found, tokenizer = model_init.init(*args, **kwargs)
    found.__class__ = ExLlamaV2
    assert isinstance(found, ExLlamaV2)
    adopt(found)
    return found, tokenizer

"""The probabilities that a model gives to the tokens of texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch

from constrain.errors import ModelError
from constrain.model.modules import Head
from constrain.quantization.layerwise import LayerwiseModel
from constrain.quantization.texts import Window

# Most logits in memory at a time.
_LOGITS = 1 << 23


class Predictions:
    """The distributions over the vocabulary at all tokens that count.

    They are computed from the states before the head whenever they are asked for, since they are much larger.
    """

    def __init__(self, model: LayerwiseModel, windows: Sequence[Window], step: Callable[[], object]) -> None:
        """Run the windows through the layers of a model; ``step`` is called for each of them and layer."""
        self.folder = model.config.model_dir
        self._vocab_size, self._device = model.config.vocab_size, model.device
        self._targets = [window.ids[window.first :] for window in windows]
        states = [window.ids.unsqueeze(0) for window in windows]
        for module in model.modules():
            if isinstance(module, Head):
                self._head = module
            else:
                model.run(module, states, step)
            del module
        self._states = [x[0, window.first - 1 : -1].clone() for x, window in zip(states, windows, strict=True)]
        self._context = model.context(1)

    def blocks(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield the logarithms of the probabilities, float32 ``[n, vocabulary]``, and the tokens that came, ``[n]``.

        How many tokens make a block depends on the windows and the size of the vocabulary only.
        """
        rows = max(1, _LOGITS // self._vocab_size)
        for states, targets in zip(self._states, self._targets, strict=True):
            for x, came in zip(torch.split(states, rows), torch.split(targets, rows), strict=True):
                yield self._log_probabilities(x), came.to(self._device)

    @torch.inference_mode()
    def _log_probabilities(self, states: torch.Tensor) -> torch.Tensor:
        logits = self._head.forward(states.to(self._device), self._context)[:, : self._vocab_size]
        return logits.float().log_softmax(dim=-1)

    def perplexity(self, losses: Sequence[torch.Tensor]) -> float:
        """Return the perplexity by the negative logarithms of the probabilities of the tokens that came.

        Raises:
            ModelError: some are not finite.
        """
        values = torch.cat(list(losses)).double()
        broken = int((~values.isfinite()).sum())
        if broken:
            raise ModelError(
                f"{self.folder}: the probabilities of {broken:,} of {len(values):,} tokens are no numbers; the weights "
                "are damaged, or the states of the model exceed the range of its dtype"
            )
        return math.exp(float(values.mean()))

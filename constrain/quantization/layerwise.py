"""Passes of many texts through a model, with one module in memory at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from constrain.errors import ModelError
from constrain.model import ExLlamaV2, ExLlamaV2Config
from constrain.model.forward_context import ForwardContext, contiguous_attention
from constrain.model.loading import rotary_tables
from constrain.model.modules import Module

#: Called as ``progress(done, total)``.
Progress = Callable[[int, int], object]


class Steps:
    """Counts the steps of a long computation, and reports them."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def __call__(self, count: int = 1) -> None:
        """Count steps."""
        self._report(min(self._done + count, self._total))

    def finish(self) -> None:
        """Count all steps that are left."""
        self._report(self._total)

    def _report(self, done: int) -> None:
        self._done = done
        if self._progress is not None:
            self._progress(done, self._total)


class LayerwiseModel:
    """A model whose modules are loaded one after the other, and are released when the next is loaded.

    Beside a module there are only the states of the texts, in the memory of the host.

    Attributes:
        config: the config.
        device, dtype: of weights and computation.
        count: number of modules.
    """

    def __init__(self, folder: str | Path) -> None:
        """
        Raises:
            ModelError: the folder cannot be used; names the file, tensor or setting at fault.
        """
        self.config = ExLlamaV2Config(folder)
        model = ExLlamaV2(self.config)
        model.choose_dtype()
        self.dtype = model.compute_dtype
        self.device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
        self.count = len(model.modules)
        self._modules = deque(model.modules)
        self._rotary = rotary_tables(self.config, self.dtype)

    @property
    def unloaded(self) -> Sequence[Module]:
        """The modules that :meth:`modules` has not loaded yet."""
        return tuple(self._modules)

    def modules(self) -> Iterator[Module]:
        """Load the modules in order. A caller that keeps none has one of them in memory, and a tied embedding.

        Raises:
            WeightsError: a file has changed and can no longer be read.
        """
        files = self.config.files
        assert files is not None
        with files.kept_open() as source:
            while self._modules:
                module = self._modules.popleft()
                module.load(source, self.device, self.dtype)
                if self.device.type == "cuda":
                    # Products may read weights before the work that was queued just before them has ended.
                    torch.cuda.synchronize(self.device)
                yield module

    def run(self, module: Module, states: list[torch.Tensor], step: Callable[[], object]) -> None:
        """Replace the states of texts by those after a module.

        Args:
            module: the next module.
            states: ``[1, width, hidden]`` each on the CPU; for the embedding, ids ``[1, width]``.
            step: called after each text.
        """
        for number, x in enumerate(states):
            states[number] = self.forward(module, x).cpu()
            step()

    @torch.inference_mode()
    def forward(self, module: Module, states: torch.Tensor) -> torch.Tensor:
        """Return the output of a module for states as those of :meth:`run`."""
        # A module may write its result to the memory of its input.
        given = states if states.dtype is torch.long else states.to(self.device, copy=True)
        return module.forward(given, self.context(states.shape[1]))

    def context(self, width: int) -> ForwardContext:
        """Return the context of a forward pass over ``width`` tokens."""
        return ForwardContext(
            contiguous_attention(
                self._rotary,
                self.config.sliding_window,
                None,
                past=0,
                width=width,
                padding=None,
                offsets=None,
                dtype=self.dtype,
                device=self.device,
            )
        )


def check_context(context: int, *models: LayerwiseModel) -> None:
    """Raise unless all models can read this many tokens at a time.

    Raises:
        ModelError: one cannot.
    """
    for model in models:
        if context > model.config.max_seq_len:
            raise ModelError(
                f"{model.config.model_dir}: windows of {context} tokens are longer than the context of this model, "
                f"which is {model.config.max_seq_len}"
            )

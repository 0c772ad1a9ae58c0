"""Layers with the methods of exllamav2 by which programs run a model layer by layer.

exllamav2's own ``test_inference.py`` and ``model_diff.py`` do so, to compare models that are larger than the memory.
"""

from __future__ import annotations

import weakref
from abc import ABC
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch

from constrain import model as native
from constrain.errors import ModelError
from constrain.model.builder import build_modules
from constrain.model.forward_context import ForwardContext, contiguous_attention
from constrain.model.loading import rotary_tables
from constrain.model.mixture import Mixture
from constrain.model.modules import MLP, Attention, Embedding, Head, LayerNorm, Module, ParallelLayer, RMSNorm
from constrain.model.rope import RotaryTable
from constrain.model.tensor_files import TensorFiles
from constrain.quantization.observed import plain_weight, weight_places

_NAMES: dict[type[Module], str] = {
    Embedding: "Embedding",
    ParallelLayer: "Parallel Decoder",
    Attention: "Attention",
    MLP: "MLP",
    Mixture: "MoE MLP",
    LayerNorm: "LayerNorm",
    RMSNorm: "RMSNorm",
    Head: "Linear",
}


class AttentionParams:
    """Positions of the tokens of a pass, for the ``forward`` of a layer.

    Attributes:
        batch_size, seq_len: shape of the ids.
        past_len: number of cached positions.
        input_mask: see :meth:`constrain.model.ExLlamaV2.forward`.
        position_offsets: likewise.
    """

    def __init__(
        self,
        batch_size: int = 1,
        seq_len: int = 1,
        past_len: int = 0,
        input_mask: torch.Tensor | None = None,
        position_offsets: torch.Tensor | None = None,
        paged: bool = False,
    ) -> None:
        self.batch_size, self.seq_len, self.past_len = batch_size, seq_len, past_len
        self.input_mask, self.position_offsets = input_mask, position_offsets
        self.paged = paged


class ExLlamaV2Attention(ABC):  # noqa: B024  (nothing is derived from it)
    """The class of attention layers for ``isinstance``, and what programs look for inside it."""

    Params = AttentionParams


ExLlamaV2Attention.register(Attention)


class DeviceName(str):
    """A device that can also be called for its name, as the method ``device`` of exllamav2's layers.

    torch takes it in place of a :class:`torch.device`, which no class can be derived from.
    """

    @property
    def type(self) -> str:
        """``"cpu"`` or ``"cuda"``."""
        return torch.device(str(self)).type

    @property
    def index(self) -> int | None:  # type: ignore[override]
        """Number of the GPU."""
        return torch.device(str(self)).index

    def __call__(self) -> str:
        return str(self)

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other)

    def __hash__(self) -> int:
        return hash(torch.device(str(self)))


class LayerMethods(Module):
    """Members that exllamav2's layers have and those of constrain do not."""

    _model: weakref.ref[native.ExLlamaV2]
    _is_loaded = False

    @property
    def model(self) -> native.ExLlamaV2:
        """The model of this layer."""
        model = self._model()
        if model is None:
            raise ModelError(f"the model of the layer {self.key} is no longer there")
        return model

    @property
    def name(self) -> str:
        """Name of the class of layers, for people."""
        return next((name for kind, name in _NAMES.items() if isinstance(self, kind)), type(self).__name__)

    @property
    def device_idx(self) -> int:
        """Number of the GPU; -1 for the CPU."""
        device = torch.device(str(self.device))
        return -1 if device.type == "cpu" else device.index or 0

    def set_device_idx(self, idx: int | None) -> None:
        """Choose the GPU to load to, or the CPU: -1, or any if there is no GPU."""
        number = -1 if idx is None or not torch.cuda.is_available() else idx
        self.device = torch.device("cpu") if number < 0 else torch.device("cuda", number)

    def load(self, *args: Any, **kwargs: Any) -> None:
        """Load the weights, to the device that the model or :meth:`set_device_idx` has chosen.

        Arguments are those of :meth:`constrain.model.modules.Module.load`, by which the model loads its layers.
        """
        if args or kwargs:
            super().load(*args, **kwargs)
        else:
            with _loaded_embedding(self), self._files().kept_open() as source:
                super().load(source, torch.device(str(self.device)), self.model.compute_dtype)
        self._is_loaded = True

    def unload(self) -> None:
        """Release the weights; they can be loaded again."""
        model = self.model
        fresh = build_modules(model.config)[model.modules.index(self)]
        kept = {name: value for name, value in vars(self).items() if name in ("device", "tied", "_model")}
        vars(self).clear()
        vars(self).update({**vars(fresh), **kept})
        model.modules_dict.update(self.submodules())

    def reload(self) -> None:
        """Load the weights again, from the files that ``config.tensor_file_map`` names now."""
        self.unload()
        self.load()

    def rank_reduce(self, share: float) -> None:
        """Replace each weight by its best approximation of a lower rank: this share of its shorter side."""
        for place in weight_places(self):
            weight = plain_weight(place.weight, self.model.compute_dtype)
            parts = torch.split(weight, list(place.layout.outputs))
            place.weight = torch.cat([_of_lower_rank(part, share) for part in parts])

    def forward(self, x: torch.Tensor, context: Any = None, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Run the layer, with a context as constrain's models do, or with the arguments of exllamav2.

        Args:
            x: ids or states.
            context: a :class:`~constrain.model.forward_context.ForwardContext`; or a KV cache, or ``None``.
            args, kwargs: with a context, those of the layer; else ``cache``, ``attn_params``, ``past_len``, ``loras``,
                and others, which are ignored.
        """
        if isinstance(context, ForwardContext):
            return super().forward(x, context, *args, **kwargs)  # type: ignore[safe-super]
        states = x if x.dtype is torch.long else x.to(str(self.device))
        cache = kwargs.pop("cache", context)
        return super().forward(states, self._context(x, cache, **kwargs))  # type: ignore[safe-super]

    def _context(
        self,
        x: torch.Tensor,
        cache: native.ExLlamaV2CacheBase | None,
        attn_params: AttentionParams | None = None,
        past_len: int | None = None,
        loras: Sequence[native.ExLlamaV2Lora] | native.ExLlamaV2Lora | None = None,
        **ignored: Any,
    ) -> ForwardContext:
        params = attn_params or AttentionParams(x.shape[0], x.shape[1], past_len or 0)
        attention = contiguous_attention(
            _tables(self.model),
            self.model.config.sliding_window,
            cache,
            past=params.past_len,
            width=x.shape[1],
            padding=params.input_mask,
            offsets=params.position_offsets,
            dtype=self.model.compute_dtype,
            device=torch.device(str(self.device)),
        )
        return ForwardContext(attention, native.ExLlamaV2Lora.listed(loras))

    def _files(self) -> TensorFiles:
        """Return the files that hold this layer: those of another model if ``config.tensor_file_map`` names them."""
        config = self.model.config
        found = (file for key, file in config.tensor_file_map.items() if key.startswith(f"{self.key}."))
        named = next(found, None)
        files = config.files
        if named is not None and named not in config.tensor_files:
            files = native.ExLlamaV2Config(Path(named).parent).files
        if files is None:
            raise ModelError("the config was prepared with no_tensors=True; call prepare() to find the weights")
        return files


def adopt(model: native.ExLlamaV2) -> None:
    """Give the layers of a model the methods of exllamav2's."""
    for module in model.modules:
        module.__class__ = _with_methods(type(module))
        # Weak, so that the weights are released with the last reference to the model.
        vars(module)["_model"] = weakref.ref(model)


@cache
def _with_methods(kind: type[Module]) -> type[Module]:
    """Return a class of layers with the methods of :class:`LayerMethods`."""
    # Programs call it on the head only, which tells where logits are.
    own = {"device": property(_device_of, _set_device)} if issubclass(kind, Head) else {}
    return type(kind.__name__, (LayerMethods, kind), own)


def _device_of(module: Module) -> DeviceName:
    return DeviceName(vars(module)["device"])


def _set_device(module: Module, device: torch.device) -> None:
    vars(module)["device"] = torch.device(str(device))


@contextmanager
def _loaded_embedding(module: Module) -> Iterator[None]:
    """Have the embedding in memory whose weight a head shares, if it does."""
    tied = vars(module).get("tied")
    if tied is None or tied._is_loaded:
        yield
        return
    tied.load()
    yield
    tied.unload()


_TABLES: weakref.WeakKeyDictionary[native.ExLlamaV2, tuple[RotaryTable, RotaryTable]] = weakref.WeakKeyDictionary()


def _tables(model: native.ExLlamaV2) -> tuple[RotaryTable, RotaryTable]:
    """Return the rotary tables of a model, which need not be loaded."""
    if model not in _TABLES:
        _TABLES[model] = rotary_tables(model.config, model.compute_dtype)
    return _TABLES[model]


def _of_lower_rank(weight: torch.Tensor, share: float) -> torch.Tensor:
    left, values, right = torch.linalg.svd(weight.float(), full_matrices=False)
    rank = max(1, int(share * len(values)))
    reduced: torch.Tensor = (left[:, :rank] * values[:rank]) @ right[:rank]
    return reduced.to(weight.dtype)

"""Low-rank adapters (LoRA)."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from constrain.arguments import check_number, check_type, refused
from constrain.errors import GenerationError, ModelError, WeightsError
from constrain.model.config import ExLlamaV2Config
from constrain.model.lora_config import LoraConfig
from constrain.model.modules import Linear, Module
from constrain.model.tensor_files import TensorFiles

_ORIGINAL = ".original_module.weight"
#: Part of the names of modules that were trained as a whole, in files that ``peft`` has not written itself.
_TRAINED = re.compile(r"\.modules_to_save(\.default)?(?=\.weight)")
#: Other layers than those of the text model are of a vision tower, for example, whose names end alike.
_PROJECTION = re.compile(r"((?:(?:.*?\.)?(?:language_)?model\.)?(layers\.\d+\..+))\.lora_([AB])(?:\.default)?\.weight")


class AdaptedModel(Protocol):
    """The part of a model that its adapters need."""

    @property
    def config(self) -> ExLlamaV2Config: ...
    @property
    def loaded(self) -> bool: ...
    @property
    def compute_dtype(self) -> torch.dtype: ...
    @property
    def modules(self) -> Sequence[Module]: ...
    @property
    def modules_dict(self) -> Mapping[str, Module]: ...


class ExLlamaV2Lora:
    """An adapter in the format of ``peft``, attached to the linear layers of a loaded model.

    A layer computes ``y + scaling * (x A^T) B^T`` if the adapter is among the ``loras`` of a forward pass (Hu et al.
    2021), with ``scaling = lora_scaling * alpha / r``, or ``lora_scaling * alpha / sqrt(r)`` with rank-stabilised
    scaling (Kalajdzievski 2023). Layers may have ranks and alphas of their own (``rank_pattern``, ``alpha_pattern``).

    Attributes:
        model: the model.
        lora_r, lora_alpha: rank and alpha, from the adapter's config.
        lora_scaling: the final factor of layers without a rank and alpha of their own.
        tensors: the matrices by name: A as stored, B times the final factor of the layer.
        target_modules: names of the layers that it changes.
        embed_tokens, lm_head: weights that replace the model's own while the adapter is the first of ``loras`` that has
            them, or ``None``.
        loaded: whether it is attached to the model.
        bias_ignored: whether the file has biases, all of them zero.
        lora_path, lora_config_path: its files.
    """

    def __init__(
        self,
        model: AdaptedModel,
        lora_config_path: str | os.PathLike[str],
        lora_path: str | os.PathLike[str],
        lora_scaling: float = 1.0,
    ) -> None:
        """Read an adapter and attach it.

        Args:
            model: a loaded model.
            lora_config_path: its ``adapter_config.json``.
            lora_path: its safetensors file.
            lora_scaling: further factor.

        Raises:
            ArgumentError: ``model`` is no model, or ``lora_scaling`` not a finite number.
            ModelError: the model is not loaded.
            ConfigError: the config is malformed or asks for something that is not supported.
            WeightsError: the file is damaged or has no tensors, a tensor fits no layer of the model, two fit the same,
                or a weight is not finite.
        """
        check_number("lora_scaling", lora_scaling)
        if not hasattr(model, "modules_dict"):
            raise refused("model", model, "an ExLlamaV2")
        if not model.loaded:
            raise ModelError("the model is not loaded; load it before its adapters, which go where its layers are")
        self.model = model
        self.config = model.config
        self.lora_config_path, self.lora_path = os.fspath(lora_config_path), os.fspath(lora_path)
        self._settings = LoraConfig.of_file(Path(lora_config_path))
        self._factor = lora_scaling
        self.lora_r, self.lora_alpha = self._settings.rank, self._settings.alpha
        self.lora_scaling = lora_scaling * self._settings.scaling
        self.embed_tokens: torch.Tensor | None = None
        self.lm_head: torch.Tensor | None = None
        self.bias_ignored = False
        self.tensors: dict[str, torch.Tensor] = {}
        self.target_modules: list[str] = []
        self._read(TensorFiles([Path(lora_path)]))
        self.loaded = True

    @staticmethod
    def listed(loras: Sequence[ExLlamaV2Lora] | ExLlamaV2Lora | None) -> list[ExLlamaV2Lora]:
        """Return the adapters of an argument that is ``None``, an adapter, or a list, as a list.

        Raises:
            ArgumentError: the argument is anything else.
        """
        found: list[Any] = [] if loras is None else list(loras) if isinstance(loras, (list, tuple)) else [loras]
        if not all(isinstance(each, ExLlamaV2Lora) for each in found):
            raise refused("loras", loras, "an ExLlamaV2Lora, or a list of such")
        return found

    @staticmethod
    def from_directory(
        model: AdaptedModel, directory: str | os.PathLike[str], lora_scaling: float = 1.0
    ) -> ExLlamaV2Lora:
        """Load the adapter in ``directory``: ``adapter_config.json`` and ``adapter_model.safetensors``.

        Raises:
            ConfigError: there is no config, or the constructor raises it.
            WeightsError: there is no safetensors file, or the constructor raises it.
        """
        check_type("directory", directory, (str, os.PathLike), "the path of a folder")
        folder = Path(directory)
        weights = folder / "adapter_model.safetensors"
        if not weights.is_file() and (folder / "adapter_model.bin").is_file():
            raise WeightsError(
                f"{folder}: adapter_model.bin is a pickle, which may run code when read, so it is not; "
                "convert it where you trust it, with torch.load(..., weights_only=True) and safetensors.torch.save_file"
            )
        if not weights.is_file():
            raise WeightsError(f"{folder}: no adapter_model.safetensors in this folder")
        return ExLlamaV2Lora(model, folder / "adapter_config.json", weights, lora_scaling)

    def unload(self) -> None:
        """Detach from the model. Requests that use the adapter end with an error."""
        self.loaded = False
        for module in self.model.modules_dict.values():
            if isinstance(module, Linear):
                module.detach(self)
        self.tensors, self.embed_tokens, self.lm_head = {}, None, None

    def _read(self, files: TensorFiles) -> None:
        pairs: dict[str, dict[str, str]] = {}
        names: dict[str, str] = {}
        if not files.tensors:
            raise WeightsError(f"{files.files[0]}: has no tensors, so the adapter would change nothing")
        for name in files.tensors:
            module = _TRAINED.sub("", name)
            if name.endswith(_ORIGINAL) or (module != name and module in files.tensors):
                continue
            if match := _PROJECTION.fullmatch(name):
                layer = self.config.prefix.body + match[2]
                if names.setdefault(layer, match[1]) != match[1] or match[3] in pairs.get(layer, ()):
                    raise WeightsError(
                        f"{files.tensors[name].file}: {name} adapts {layer}, for which there is another tensor"
                    )
                pairs.setdefault(layer, {})[match[3]] = name
            elif module.endswith("embed_tokens.weight"):
                self.embed_tokens = self._replacement(files, name, self.model.modules[0])
            elif module.endswith("lm_head.weight"):
                self.lm_head = self._replacement(files, name, self.model.modules[-1])
            elif name.endswith("bias"):
                self._check_zero(files, name)
            else:
                raise WeightsError(
                    f"{files.tensors[name].file}: tensor {name} is no part of an adapter of a supported form"
                )
        # All tensors are read before any is attached, so that an error leaves the model unchanged.
        pairs_read = [(layer, *self._pair(files, layer, names[layer], pair)) for layer, pair in pairs.items()]
        for layer, linear, down, up in pairs_read:
            linear.attach(self, layer, down, up)
            self.target_modules.append(layer)

    def _pair(
        self, files: TensorFiles, layer: str, stored: str, names: dict[str, str]
    ) -> tuple[Linear, torch.Tensor, torch.Tensor]:
        """Return the linear layer that contains ``layer``, A, and B times the factor; ``stored``: its name in files."""
        where = files.tensors[next(iter(names.values()))].file
        linear = self.model.modules_dict.get(layer)
        if not isinstance(linear, Linear):
            raise WeightsError(f"{where}: adapts {layer}, which the model does not have")
        if len(names) != 2:
            raise WeightsError(f"{where}: {layer} has no lora_{({'A', 'B'} - names.keys()).pop()}")
        rows = linear.rows_of(layer)
        rank, scaling = self._settings.of_layer(stored)
        down = self._tensor(files, names["A"], (rank, linear.layout.inputs), linear.device)
        up = self._tensor(files, names["B"], (rows.stop - rows.start, rank), linear.device)
        dtype = self.model.compute_dtype
        down, up = down.to(dtype), up.mul_(self._factor * scaling).to(dtype)
        self._check_finite(files, names["A"], down)
        self._check_finite(files, names["B"], up)
        self.tensors |= {names["A"]: down, names["B"]: up}
        return linear, down, up

    def _replacement(self, files: TensorFiles, name: str, module: Module) -> torch.Tensor:
        """Read a weight that replaces the embedding or head, and pad it to the same number of rows."""
        size, hidden = self.config.vocab_size, self.config.hidden_size
        weight = self._tensor(files, name, (size, hidden), module.device).to(self.model.compute_dtype)
        self._check_finite(files, name, weight)
        return torch.nn.functional.pad(weight, (0, 0, 0, -size % 32))

    def _check_zero(self, files: TensorFiles, name: str) -> None:
        stored = files.tensors[name]
        if not (self._tensor(files, name, stored.shape, torch.device("cpu")).abs() <= 1e-6).all():
            raise WeightsError(f"{stored.file}: bias {name} is not zero; adapters with biases are not supported")
        self.bias_ignored = True

    @staticmethod
    def _check_finite(files: TensorFiles, name: str, weight: torch.Tensor) -> None:
        """Raise :class:`WeightsError` if a weight is not finite, with its factor and as the dtype of the model."""
        if not weight.isfinite().all():
            kind = str(weight.dtype).removeprefix("torch.")
            raise WeightsError(f"{files.tensors[name].file}: tensor {name} has values that are not finite in {kind}")

    @staticmethod
    def _tensor(files: TensorFiles, name: str, shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
        stored = files.tensors[name]
        if stored.shape != shape:
            raise WeightsError(
                f"{stored.file}: tensor {name} has shape {[*stored.shape]}, but its adapter_config.json and the model "
                f"ask for {[*shape]}"
            )
        tensor = torch.empty(shape, device=device)
        files.copy(name, tensor)
        return tensor


def check_adapters(model: AdaptedModel, loras: Sequence[ExLlamaV2Lora]) -> None:
    """Check that adapters are attached to a model.

    Raises:
        GenerationError: one belongs to another model, or has been unloaded.
    """
    for lora in loras:
        if lora.model is not model:
            raise GenerationError(f"the adapter {lora.lora_path} belongs to another model; load it for this one")
        if not lora.loaded:
            raise GenerationError(f"the adapter {lora.lora_path} has been unloaded; load it again")

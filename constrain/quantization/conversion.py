"""Conversion of a model to four or eight bits, one layer at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from constrain.arguments import check_count, check_number, refused
from constrain.errors import ArgumentError
from constrain.model.layout import LinearLayout
from constrain.model.modules import Head, Module
from constrain.quantization.checkpoint import copy_others, quantization_config, write_config, write_index
from constrain.quantization.layer_weights import Rounding, quantize_module, quantize_weight, use_weights
from constrain.quantization.layerwise import LayerwiseModel, Progress, Steps, check_context
from constrain.quantization.observed import plain_weight, quantized_layouts
from constrain.quantization.output_folder import OutputFolder, locked
from constrain.quantization.source import SourceTensors, choose_group_size, fingerprint
from constrain.quantization.texts import DEFAULT_CONTEXT, Texts, Window, listed, windows_of
from constrain.tokenizer import ExLlamaV2Tokenizer

#: Changes whenever the same settings give other weights, so that no conversion is resumed by another algorithm.
_VERSION = 1
_HEAD_BITS = 8
#: Default of ``max_tokens``; more hardly improve the weights.
DEFAULT_TOKENS = 1 << 18


@dataclass(frozen=True)
class Quantization:
    """A model that was quantised.

    Attributes:
        folder: of the quantised model.
        bits: of the codes of projections.
        group_size: number of inputs that share a scale; ``None``: all of a row.
        tokens: number of tokens that the weights were calibrated with.
        source_bytes, bytes: sizes of all tensors before and after.
        errors: for each layer, the root of the mean squared error of its products, divided by that of the products,
            with the inputs of the calibration; without calibration those of the elements of its weight.
    """

    folder: str
    bits: int
    group_size: int | None
    tokens: int
    source_bytes: int
    bytes: int
    errors: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return all figures as JSON."""
        return asdict(self)


def quantize(
    model: str | Path,
    out: str | Path,
    *,
    bits: int = 4,
    group_size: int | None = None,
    calibration: Texts | None = None,
    head_bits: int | None = None,
    context: int | None = None,
    max_tokens: int = DEFAULT_TOKENS,
    activation_order: bool = True,
    damping: float = 0.01,
    progress: Progress | None = None,
) -> Quantization:
    """Convert the projections of a model to four or eight bits, in the ``pack-quantized`` form of compressed-tensors.

    With texts to calibrate with, the rounding error of each input of a layer is made up for by the inputs after it
    (GPTQ, Frantar et al. 2022), for the inputs that the layer has in these texts, after the layers before it have been
    quantised. Without, every element is rounded to the nearest code. Either way, scales are those with the least
    squared error. Embeddings, norms, biases, routers of experts, experts that are stored as one tensor, and the weight
    that expands the states of latent attention stay as they are, and so does the head; quantised weights among them
    become plain ones.

    One layer is in memory at a time, and the states of the texts between two layers: ``hidden_size`` numbers for each
    token. Every layer is written when it is done. A conversion that was interrupted goes on after the last of them when
    it is called again with the same arguments, and gives the same weights.

    Args:
        model: folder of the model.
        out: folder for the quantised one, which is new or empty, or has an interrupted conversion.
        bits: 4 or 8.
        group_size: number of inputs that share a scale; it must divide the inputs of all layers. 0 is one scale for
            each row. By default 128, or 64 or 32 if that does not divide them, or else 0.
        calibration: texts of the kind that the model will be used for; names of special tokens are these tokens.
        head_bits: 8 to quantise the head too, rounded to the nearest; not possible if it shares the weight of the
            embedding.
        context: most tokens of a calibration text that are read at a time; by default what the model allows, and no
            more than 2048.
        max_tokens: most tokens to calibrate with; of longer texts, parts that are spread evenly.
        activation_order: round inputs with large activations first. Groups stay those of neighbouring inputs.
        damping: share of the mean of the squared activations that is added to each of them.
        progress: called as ``progress(done, total)`` after each step.

    Raises:
        ArgumentError: an argument is invalid, the texts are too short, or ``out`` has something else or cannot be
            written.
        ModelError: the folder of the model cannot be used, or weights or activations are not finite.
    """
    check_number("damping", damping, 0, 1)
    check_count("max_tokens", max_tokens, 1)
    if group_size is not None:
        check_count("group_size", group_size, 0)
    if bits not in (4, 8) or head_bits not in (None, _HEAD_BITS):
        name, value, wanted = ("bits", bits, "4 or 8") if bits not in (4, 8) else ("head_bits", head_bits, "8 or None")
        raise refused(name, value, wanted)
    source = LayerwiseModel(model)
    windows = [] if calibration is None else _calibration_windows(source, calibration, context, max_tokens)
    tensors = SourceTensors(source.config)
    layouts = [layout for module in source.unloaded for layout in quantized_layouts(module)]
    group = choose_group_size(layouts, group_size)
    rounding = Rounding(bits, group, tensors.dtype, activation_order and bool(windows), damping)
    conversion = _Conversion(source, tensors, windows, rounding, _head_rounding(source, rounding, head_bits))
    out = Path(out)
    try:
        with locked(out):
            output = OutputFolder(out, conversion.settings())
            conversion.run(output, progress)
    except (OSError, SafetensorError) as error:
        raise ArgumentError(f"{out}: the quantised model cannot be written ({error})") from error
    entries = output.files.values()
    return Quantization(
        folder=str(out),
        bits=bits,
        group_size=group,
        tokens=sum(len(window.ids) for window in windows),
        source_bytes=tensors.total_bytes(),
        bytes=sum(entry["bytes"] for entry in entries),
        errors={key: error for entry in entries for key, error in entry["errors"].items()},
    )


def _head_rounding(source: LayerwiseModel, rounding: Rounding, bits: int | None) -> Rounding | None:
    """Return how the head is rounded, if it is.

    Raises:
        ArgumentError: it has no weight of its own.
    """
    if bits is None:
        return None
    if source.config.layout.tied:
        raise ArgumentError(
            f"{source.config.model_dir}: the head has the weight of the embedding, which stays as it is; leave out "
            "head_bits"
        )
    fits = not rounding.group_size or source.config.hidden_size % rounding.group_size == 0
    return replace(rounding, bits=bits, group_size=rounding.group_size if fits else None)


def _calibration_windows(source: LayerwiseModel, texts: Texts, context: int | None, max_tokens: int) -> list[Window]:
    """Split texts into windows, and choose some of them that are spread evenly."""
    width = min(DEFAULT_CONTEXT, source.config.max_seq_len) if context is None else context
    windows = windows_of(ExLlamaV2Tokenizer(source.config), listed(texts), width, width - 1)
    check_context(width, source)
    if not windows:
        raise ArgumentError("the texts to calibrate with are too short: they have no token after another")
    total = sum(len(window.ids) for window in windows)
    count = max(1, min(len(windows), len(windows) * max_tokens // total))
    return [windows[number * len(windows) // count] for number in range(count)]


@dataclass(frozen=True)
class _Conversion:
    """A model and how it is converted."""

    source: LayerwiseModel
    tensors: SourceTensors
    windows: Sequence[Window]
    rounding: Rounding
    head: Rounding | None

    def settings(self) -> dict[str, Any]:
        """Return all that the weights depend on."""
        used = hashlib.sha256()
        for window in self.windows:
            used.update(len(window.ids).to_bytes(8, "little") + window.ids.numpy().tobytes())
        return {
            "version": _VERSION,
            "model": fingerprint(self.source.config, self.tensors),
            "calibration": used.hexdigest() if self.windows else None,
            "computed in": str(self.source.dtype),
            "projections": _described(self.rounding),
            "head": self.head and _described(self.head),
        }

    def run(self, output: OutputFolder, progress: Progress | None) -> None:
        """Write all files that are not there yet."""
        quantized = {
            f"{key}.weight": None
            for module in self.source.unloaded
            for layout in self._layouts(module)
            for key, _ in layout.parts()
        }
        left = sum(bool(self._layouts(module)) for module in self.source.unloaded)
        others = list(self.tensors.others(quantized))
        names = [f"model-{n:05}-of-{left + len(others):05}.safetensors" for n in range(1, left + len(others) + 1)]
        if (output.path / "config.json").exists() and all(map(output.has, names)):
            return
        steps = Steps(progress, self._steps() + len(names))
        self._quantize_layers(output, names[:left], steps)
        for name, keys in zip(names[left:], others, strict=True):
            if not output.has(name):
                output.save(name, {key: self.tensors.read(key) for key in keys}, {})
            steps()
        self._finish(output, quantized)
        steps.finish()

    def _quantize_layers(self, output: OutputFolder, names: Sequence[str], steps: Steps) -> None:
        """Write the files of the quantised weights."""
        left = list(names)
        states = [window.ids.unsqueeze(0) for window in self.windows]
        for module in self.source.modules():
            if self._layouts(module):
                self._quantize(module, states, output, left.pop(0), steps)
                steps()
            if not left:
                return
            self.source.run(module, states, steps)
            del module

    def _quantize(
        self, module: Module, states: Sequence[torch.Tensor], output: OutputFolder, name: str, steps: Steps
    ) -> None:
        """Write the weights of a module, unless they are there, and have the module use them."""
        tensors = output.tensors(name)
        if isinstance(module, Head):
            if tensors is None and self.head is not None:
                weight = plain_weight(module.weight, self.source.dtype)[: module.size]
                done = quantize_weight(self._layouts(module)[0], weight, None, self.head)
                output.save(name, done.tensors, done.errors)
            return
        if tensors is None:
            done = quantize_module(module, self.source, states, self.rounding, steps)
            output.save(name, done.tensors, done.errors)
            tensors = done.tensors
        else:
            steps(len(states))
        if states:
            use_weights(module, tensors, self.rounding.bits, self.source)

    def _steps(self) -> int:
        """Return how many texts go through modules, to quantise these and for the states after them."""
        modules = self.source.unloaded
        last = max(number for number, module in enumerate(modules) if self._layouts(module))
        return len(self.windows) * (last + sum(bool(quantized_layouts(module)) for module in modules))

    def _layouts(self, module: Module) -> list[LinearLayout]:
        """Return the weights of a module that are quantised."""
        if isinstance(module, Head) and self.head is not None:
            return [LinearLayout((module.key,), (module.size,), module.hidden_size)]
        return quantized_layouts(module)

    def _finish(self, output: OutputFolder, quantized: Mapping[str, None]) -> None:
        """Write the files besides the weights."""
        config = self.source.config
        head = None if self.head is None else (config.layout.head, self.head)
        ignored = {*self.tensors.matrices(quantized)} - {config.layout.embedding}
        if config.layout.tied:
            ignored.add(config.layout.head)
        copy_others(Path(str(config.model_dir)), output)
        write_index(output)
        write_config(config, output, quantization_config(self.rounding, head, sorted(ignored)))


def _described(rounding: Rounding) -> dict[str, Any]:
    return {**asdict(rounding), "dtype": str(rounding.dtype)}

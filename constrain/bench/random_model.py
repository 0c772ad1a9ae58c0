"""Models of a given shape with random weights, initialised on the device, and a tokenizer for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory
from typing import Any, cast
from zlib import crc32

import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from constrain.bench.shapes import Shape
from constrain.kernels import (
    Float4Weight,
    Float8Weight,
    GroupedInt8Weight,
    GroupedWeight,
    Int4Weight,
    InterleavedWeight,
    PackedWeight,
    RecordForm,
    scaled_form,
)
from constrain.model import ExLlamaV2, ExLlamaV2Config
from constrain.model.layout import LayerLayout, MixtureLayout, ModelLayout
from constrain.model.modules import Embedding, Head
from constrain.model.tensor_files import TensorFiles
from constrain.tokenizer import ExLlamaV2Tokenizer

_SPREAD = 0.02
_LOUD = 1e6


def random_weight(form: str, outputs: int, inputs: int, device: torch.device) -> PackedWeight:
    """Return a random weight in one of ``FORMS``, not prepared for products."""
    return FORMS[form](outputs, inputs, device)


def _grouped(kind: type[GroupedWeight], size: int, outputs: int, inputs: int, device: torch.device) -> GroupedWeight:
    codes = torch.randint(0, 256, (outputs, inputs * (kind.kind % 100) // 8), dtype=torch.uint8, device=device)
    scales = torch.full((outputs, -(-inputs // size)), _SPREAD / 8, device=device)
    # Without the codes of floats that are not numbers.
    return kind(codes & 0x77, scales.half(), size)


def _nvfp4(outputs: int, inputs: int, device: torch.device) -> GroupedWeight:
    weight = _grouped(Float4Weight, 16, outputs, inputs, device)
    ones = torch.ones_like(weight.scales).to(torch.float8_e4m3fn)
    return replace(weight, scales=ones, factors=torch.full((outputs,), _SPREAD / 8, device=device))


def _exl2(outputs: int, inputs: int, device: torch.device) -> InterleavedWeight:
    """EXL2 of 4 bits: a tenth of the inputs has 5 bits and a tenth 3; all weights of the same inputs have one order."""
    tenth, size = inputs // 10 // 128 * 128, 128
    runs = [(5, tenth), (4, inputs - 2 * tenth), (3, tenth)]
    groups = tuple((bits, min(size, run - start)) for bits, run in runs for start in range(0, run, size))
    words = sum(bits * run for bits, run in runs) // 32
    codes = torch.randint(-(1 << 31), 1 << 31, (outputs, words), dtype=torch.int32, device=device)
    scales = torch.full((outputs, len(groups)), _SPREAD / 8, device=device).half()
    order = torch.randperm(inputs, generator=torch.Generator().manual_seed(inputs)).to(device)
    return InterleavedWeight.of_rows(codes, scales, None, order, groups)


FORMS: dict[str, Callable[[int, int, torch.device], PackedWeight]] = {
    "int8": partial(_grouped, GroupedInt8Weight, 128),
    "int4": partial(_grouped, Int4Weight, 128),
    "fp8": partial(_grouped, Float8Weight, 128),
    "mxfp4": partial(_grouped, Float4Weight, 32),
    "nvfp4": _nvfp4,
    "exl2": _exl2,
}
"""Functions that make random packed weights, by the name of their form, from outputs, inputs and a device."""


_RECORDS = {
    "int8": RecordForm("int8", 128, torch.float16),
    "int4": RecordForm("int4", 128, torch.float16),
    "fp8": RecordForm("float8", 128, torch.float16),
    "mxfp4": RecordForm("float4", 32, torch.float16),
    "nvfp4": scaled_form(),
    "exl2": RecordForm("int4", 128, torch.float16),
}
"""Forms in which a GPU takes experts packed, by the name of their form."""


class _RandomTensors:
    """A substitute for checkpoint files: norm weights are 1, all others normally distributed, or packed."""

    def __init__(self, form: str | None) -> None:
        self._form = form
        self.quantized: dict[str, object] = {}

    def dtype(self, key: str) -> torch.dtype:
        return torch.bfloat16

    def reader(self, tensors: object) -> AbstractContextManager[_RandomTensors]:
        return nullcontext(self)

    def kept_open(self) -> AbstractContextManager[_RandomTensors]:
        return nullcontext(self)

    def copy(self, key: str, target: torch.Tensor) -> None:
        if "norm" in key:
            target.fill_(1.0)
        else:
            generator = torch.Generator(target.device).manual_seed(crc32(key.encode()))
            target.normal_(0.0, _SPREAD, generator=generator)

    def stays_packed(self, key: str, device: torch.device) -> bool:
        return False

    def packed(self, key: str, shape: tuple[int, int], device: torch.device) -> PackedWeight | None:
        # On a GPU a head that is not quantised is what people have.
        if self._form is None or (device.type == "cuda" and ("embed" in key or "lm_head" in key)):
            return None
        # Nor is a router.
        if key.endswith(".gate.weight"):
            return None
        return random_weight(self._form, *shape, device)

    def packed_experts(self, key: str, shape: tuple[int, ...]) -> None:
        pass


def _with_packed_experts(layout: ModelLayout, form: str | None) -> ModelLayout:
    """Return the layout of files whose experts are of this form."""
    records = _RECORDS.get(form or "")

    def changed(layer: LayerLayout) -> LayerLayout:
        inner = layer.feed_forward
        if not isinstance(inner, MixtureLayout):
            return layer
        gate_up, down = (replace(part, stacked=None, records=records) for part in (inner.gate_up, inner.down))
        return replace(layer, feed_forward=replace(inner, gate_up=gate_up, down=down))

    return layout if records is None else replace(layout, layers=tuple(map(changed, layout.layers)))


def random_model(
    shape: Shape,
    folder: Path,
    tokenizer_dir: Path | None = None,
    form: str | None = None,
    load: Callable[[ExLlamaV2], None] = ExLlamaV2.load,
) -> tuple[ExLlamaV2, ExLlamaV2Tokenizer]:
    """Return a loaded model with random weights, and a tokenizer.

    Args:
        shape: of the model.
        folder: an empty folder for the configuration and tokenizer files.
        tokenizer_dir: has the tokenizer files, with no more tokens than the model; by default, the tokenizer has one
            word per id.
        form: of the weights, one of ``FORMS`` where weights stay packed; ``None``: plain.
        load: loads the model; however it does, the weights are the same.
    """
    (folder / "config.json").write_text(json.dumps(shape.config()))
    if tokenizer_dir is None:
        vocabulary = {f"t{token}": token for token in range(shape.vocab_size)}
        words = Tokenizer(models.WordLevel(vocabulary, unk_token="t0"))
        words.pre_tokenizer = pre_tokenizers.Whitespace()
        words.save(str(folder / "tokenizer.json"))
    else:
        for file in tokenizer_dir.glob("tokenizer*.json"):
            copy(file, folder)
    config = ExLlamaV2Config()
    config.model_dir = str(folder)
    config.prepare(no_tensors=True)
    config.files = cast(TensorFiles, _RandomTensors(form))
    config.layout = _with_packed_experts(config.layout, form)
    model = ExLlamaV2(config)
    load(model)
    return model, ExLlamaV2Tokenizer(config)


def random_model_of(tokenizer_dir: Path, shape: Shape) -> tuple[ExLlamaV2, ExLlamaV2Tokenizer]:
    """Return a model with random weights whose vocabulary is that of a tokenizer, and the tokenizer.

    Args:
        tokenizer_dir: has a ``tokenizer.json``.
        shape: of the model, except the size of its vocabulary.
    """
    size = Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json")).get_vocab_size()
    with TemporaryDirectory() as folder:
        return random_model(replace(shape, vocab_size=size), Path(folder), tokenizer_dir)


def prefer(model: ExLlamaV2, weights: torch.Tensor) -> None:
    """Make a random model's token probabilities proportional to ``weights`` ``[tokens]``, independent of the context.

    One feature of the hidden states is constant and dwarfs all others. The cost of a step does not change.
    """
    embedding, head = model.modules[0], model.modules[model.head_layer_idx]
    assert isinstance(embedding, Embedding) and isinstance(head, Head)
    assert isinstance(embedding.weight, torch.Tensor) and isinstance(head.weight, torch.Tensor)
    embedding.weight[:, 0] = _LOUD
    # Value of that feature after the final norm, which scales the mean square to 1.
    loud = embedding.hidden_size**0.5
    head.weight[: len(weights), 0] = (weights.log() / loud).to(head.weight)


def random_transformers_model(shape: Shape) -> Any:
    """Return a transformers model of a shape with random weights, in bfloat16 on the GPU."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            model: Any = LlamaForCausalLM(LlamaConfig(**shape.config()))
    finally:
        torch.set_default_dtype(torch.float32)
    return model.eval()

"""Models with weights of every quantised format, and with the weights that these dequantise to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from quantized_weights import (
    Writer,
    Written,
    awq,
    exl2,
    fp8,
    gptq,
    int_quantized,
    mxfp4,
    mxfp4_experts,
    mxfp8,
    nvfp4,
    pack_quantized,
)

from constrain.model import ExLlamaV2, ExLlamaV2Config

Write = Callable[[Writer, int, int], Written]

#: A weight for tests of one.
KEY = "model.layers.0.self_attn.q_proj"

COMPRESSED = {"quant_method": "compressed-tensors", "format": "mixed-precision"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": False}
AUTO_ROUND = {"quant_method": "auto-round", "bits": 4, "group_size": 32, "packing_format": "auto_round:auto_gptq"}
MIXED = ((6, 16), (5, 32), (3, 32), (2, 32), (4, 16))


def exl2_of_two_widths(writer: Writer, outputs: int, inputs: int) -> Written:
    groups = MIXED if inputs == sum(count for _, count in MIXED) else ((8, 32), (4, inputs - 32))
    return exl2(writer, outputs, inputs, groups)


def exl2_of_one_order(writer: Writer, outputs: int, inputs: int) -> Written:
    """Weights of the same inputs share their order, as in files of exllamav2; some have wider codes."""
    groups = ((8, 32), (4, inputs - 32)) if outputs % 128 == 0 else ((5, 32), (3, inputs - 32))
    return exl2(writer, outputs, inputs, groups, np.random.default_rng(inputs).permutation(inputs))


def _gptq(**settings: Any) -> tuple[dict[str, Any], Write]:
    config = {**GPTQ, "bits": settings.get("bits", 4), "desc_act": settings.get("ordered", False)}
    form = "gptq_v2" if settings.get("version") == 2 else "gptq"
    return {**config, "checkpoint_format": form, "sym": settings.get("symmetric", False)}, partial(gptq, **settings)


#: The quantization_config, the writer of a weight, and the form as people see it.
FORMATS: dict[str, tuple[dict[str, Any] | None, Write, str]] = {
    "int4 groups": (COMPRESSED, partial(pack_quantized, size=32), "int4"),
    "int4 zeros": (COMPRESSED, partial(pack_quantized, size=16, zeros=True), "int4"),
    "int4 zeros in bytes": (COMPRESSED, partial(pack_quantized, size=32, zeros=True, bytewise=True), "int4"),
    **{
        f"int{bits} groups": (
            COMPRESSED,
            partial(pack_quantized, bits=bits, size=32, zeros=bits % 3 == 0, ordered=bits % 2 == 1),
            f"int{bits}",
        )
        for bits in (2, 3, 5, 6)
    },
    "int4 ordered": (COMPRESSED, partial(pack_quantized, size=32, ordered=True), "int4"),
    "int4 rows": (COMPRESSED, pack_quantized, "int4"),
    "int4 one scale": (COMPRESSED, partial(pack_quantized, size=-1), "int4"),
    "int8 groups": (COMPRESSED, partial(pack_quantized, bits=8, size=32), "int8"),
    "int8 rows, zeros": (COMPRESSED, partial(pack_quantized, bits=8, zeros=True), "int8"),
    "int8 ordered": (COMPRESSED, partial(pack_quantized, bits=8, size=16, zeros=True, ordered=True), "int8"),
    "int8 bytes": (COMPRESSED, int_quantized, "int8"),
    "int8 bytes, groups": (COMPRESSED, partial(int_quantized, size=32), "int8"),
    "int8 bytes, zeros": (COMPRESSED, partial(int_quantized, zeros=True), "int8"),
    "fp8 one scale": (COMPRESSED, partial(fp8, block=(0, 0)), "fp8"),
    "fp8 rows": (COMPRESSED, partial(fp8, block=(1, 0)), "fp8"),
    "fp8 groups": (COMPRESSED, partial(fp8, block=(1, 32)), "fp8"),
    "fp8 of FBGEMM": ({"quant_method": "fbgemm_fp8"}, partial(fp8, block=(1, 0)), "fp8"),
    "fp8 blocks": (
        {"quant_method": "fp8", "weight_block_size": [24, 48]},
        partial(fp8, block=(24, 48), name="weight_scale_inv"),
        "fp8",
    ),
    "mxfp8": (COMPRESSED, mxfp8, "fp8"),
    "mxfp4": (COMPRESSED, mxfp4, "mxfp4"),
    "nvfp4": (COMPRESSED, nvfp4, "nvfp4"),
    "nvfp4 of ModelOpt": (
        {"quant_method": "modelopt", "quant_algo": "NVFP4"},
        partial(nvfp4, maker="modelopt"),
        "nvfp4",
    ),
    **{
        f"gptq {bits} bits{order * ', ordered'} v{version}": (
            *_gptq(bits=bits, ordered=order, version=version),
            f"int{bits}",
        )
        for bits in (2, 3, 4, 8)
        for order, version in ((False, 1), (True, 2))
    },
    "gptq symmetric": (*_gptq(symmetric=True), "int4"),
    "gptq without a config": (None, gptq, "int4"),
    "gptq of AutoRound": ({**AUTO_ROUND, "sym": True}, partial(gptq, symmetric=True), "int4"),
    "awq of AutoRound": ({**AUTO_ROUND, "packing_format": "auto_round:auto_awq"}, awq, "int4"),
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": 32, "version": "GEMM"}, awq, "int4"),
    "awq without a config": (None, awq, "int4"),
    "exl2": ({"quant_method": "exl2", "bits": 4.2}, exl2_of_two_widths, "exl2"),
    "exl2 of one order": ({"quant_method": "exl2", "bits": 4.2}, exl2_of_one_order, "exl2"),
}


def matrices(copy: Any) -> list[str]:
    """Keys of all weights but that of the embedding."""
    names = [name for name, tensor in copy.tensors.items() if tensor.ndim == 2 and "embed" not in name]
    return [name.removesuffix(".weight") for name in names]


def quantise(copy: Any, keys: Iterable[str], write: Write, config: dict[str, Any] | None) -> dict[str, torch.Tensor]:
    """Replace weights by random ones of a format, and return these, dequantised."""
    plain, writer = {}, Writer()
    for key in keys:
        written = write(writer, *copy.tensors.pop(f"{key}.weight").shape)
        copy.tensors |= {f"{key}.{part}": tensor for part, tensor in written.parts.items()}
        plain[f"{key}.weight"] = written.dense
    if config is not None:
        copy.config["quantization_config"] = config
    return plain


def load(copy: Any, **settings: Any) -> ExLlamaV2:
    config = ExLlamaV2Config(copy.write())
    for name, value in settings.items():
        setattr(config, name, value)
    model = ExLlamaV2(config)
    model.load()
    return model


def load_plain(copy: Any, plain: dict[str, torch.Tensor], **settings: Any) -> ExLlamaV2:
    """Load the model with these weights in place of the quantised ones."""
    keys = [name.removesuffix(".weight") for name in plain]
    for name in [name for name in copy.tensors if name.rpartition(".")[0] in keys and not name.endswith(".bias")]:
        del copy.tensors[name]
    copy.tensors |= plain
    copy.config.pop("quantization_config", None)
    return load(copy, **settings)


def weight_of(model: ExLlamaV2, key: str) -> Any:
    return model.modules_dict[key].weight  # type: ignore[attr-defined]


def store_experts(copy: Any) -> dict[str, torch.Tensor]:
    """Replace the experts of a gpt-oss by random ones in MXFP4, and return these, dequantised."""
    plain, writer = {}, Writer()
    for key in [key for key, tensor in copy.tensors.items() if "experts" in key and tensor.ndim == 3]:
        experts, inputs, outputs = copy.tensors.pop(key).shape
        written = mxfp4_experts(writer, experts, outputs, inputs)
        copy.tensors |= {f"{key}_{part}": tensor for part, tensor in written.parts.items()}
        plain[key] = written.dense
    copy.config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    return plain


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Compare logits, relative to their spread."""
    spread = expected[..., :99].std()
    assert expected.isfinite().all()
    torch.testing.assert_close(found[..., :99] / spread, expected[..., :99] / spread, atol=1e-4, rtol=0)


def pretend_tensor_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the CPU arrange weights as a GPU does; their products are computed by dequantisation."""
    for module in ("devices", "grouped", "interleaved"):
        monkeypatch.setattr(f"constrain.kernels.weights.{module}.multiplies_fragments", lambda *_: True)
    for module in ("devices", "grouped"):
        monkeypatch.setattr(f"constrain.kernels.weights.{module}.multiplies_interleaved", lambda *_: False)

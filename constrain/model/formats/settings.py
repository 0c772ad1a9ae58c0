"""The ``quantization_config`` of a ``config.json``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from constrain.model.config_reader import ConfigReader

_MAX_SIZE = 1 << 24
_COMPRESSED = (
    "dense",
    "float-quantized",
    "int-quantized",
    "mixed-precision",
    "mxfp4-pack-quantized",
    "mxfp8-quantized",
    "naive-quantized",
    "nvfp4-pack-quantized",
    "pack-quantized",
)

_ROUNDED = {"auto_round:auto_gptq": "gptq", "auto_round:auto_awq": "awq"}


@dataclass(frozen=True)
class Quantization:
    """Settings of quantised weights that a config has, and their tensors do not.

    Which layers are quantised, and how each of them is, is read from the tensors: patterns of names are not.

    Attributes:
        method: its ``quant_method``.
        block: rows and columns of a block with a scale of its own, in FP8.
        bits: of the codes of GPTQ and AWQ; ``None`` if they are not said, or differ.
        group_size: inputs of a group, likewise; -1 for all.
        symmetric: whether all zero points of GPTQ are the middle of the range.
        ordered: whether GPTQ has its inputs in an order of their own.
        zero_offset: 1 for GPTQ of the first version, which stores zero points less one, else 0.
    """

    method: str
    block: tuple[int, int] = (128, 128)
    bits: int | None = None
    group_size: int | None = None
    symmetric: bool = False
    ordered: bool = False
    zero_offset: int = 1


def read_quantization(reader: ConfigReader) -> Quantization | None:
    """Read the ``quantization_config``; ``None`` if there is none.

    Raises:
        ConfigError: the method, or a variant of it, is not supported.
    """
    if not reader.raw("quantization_config", None):
        return None
    section = reader.section("quantization_config")
    method = section.text("quant_method")
    if method not in _METHODS:
        raise section.error("quant_method", f"{method!r} is not supported; supported are {', '.join(_METHODS)}")
    return _METHODS[method](section)


def _compressed(section: ConfigReader) -> Quantization:
    _check_format(section)
    if section.section("sparsity_config").text("format", "dense") != "dense":
        raise section.error("sparsity_config.format", "sparse weights are not supported")
    if section.section("transform_config").raw("config_groups", None):
        raise section.error("transform_config", "transforms of activations are not supported")
    blocks = [_group_block(group) for group in section.section("config_groups").sections()]
    return Quantization("compressed-tensors", next(filter(None, blocks), (128, 128)))


def _group_block(group: ConfigReader) -> tuple[int, int] | None:
    """Check a group of layers, and return the shape of its blocks if it has any."""
    _check_format(group)
    weights = group.section("weights")
    return _block(weights, "block_structure") if weights.raw("block_structure", None) else None


def _check_format(section: ConfigReader) -> None:
    found = section.text("format", "dense")
    if found not in _COMPRESSED:
        raise section.error("format", f"{found!r} is not supported; supported are {', '.join(_COMPRESSED)}")


def _float8(section: ConfigReader) -> Quantization:
    if section.text("fmt", "e4m3") != "e4m3":
        raise section.error("fmt", f"{section.raw('fmt')!r} is not supported; supported is 'e4m3'")
    block = _block(section, "weight_block_size") if section.raw("weight_block_size", None) else (128, 128)
    return Quantization("fp8", block)


def _gptq(section: ConfigReader) -> Quantization:
    form = section.text("checkpoint_format", "gptq")
    if form not in ("gptq", "gptq_v2"):
        raise section.error("checkpoint_format", f"{form!r} is not supported; supported are gptq and gptq_v2")
    # Layers that "dynamic" names have settings of their own, which are read from their tensors.
    same = not section.raw("dynamic", None)
    return Quantization(
        "gptq",
        bits=section.integer("bits", None, high=8) if same else None,
        group_size=_group_size(section, "group_size") if same else None,
        symmetric=section.boolean("sym", False),
        ordered=section.boolean("desc_act", False),
        zero_offset=int(form == "gptq"),
    )


def _awq(section: ConfigReader) -> Quantization:
    version = section.text("version", "gemm")
    if version.lower() != "gemm":
        raise section.error("version", f"{version!r} is not supported; supported is 'gemm'")
    for key in ("bits", "w_bit"):
        if section.integer(key, 4, high=64) != 4:
            raise section.error(key, f"AWQ of {section.raw(key)} bits is not supported; supported is 4")
    size = "q_group_size" if section.has("q_group_size") else "group_size"
    return Quantization("awq", bits=4, group_size=_group_size(section, size))


def _auto_round(section: ConfigReader) -> Quantization:
    """AutoRound writes the layouts of GPTQ and AWQ."""
    packing = section.text("packing_format")
    if packing not in _ROUNDED:
        raise section.error("packing_format", f"{packing!r} is not supported; supported are {', '.join(_ROUNDED)}")
    same = not section.raw("extra_config", None)
    return Quantization(
        _ROUNDED[packing],
        bits=section.integer("bits", None, high=8) if same else None,
        group_size=_group_size(section, "group_size") if same else None,
        symmetric=section.boolean("sym", False),
    )


def _group_size(section: ConfigReader, key: str) -> int | None:
    size: int | None = section.integer(key, None, low=-1, high=_MAX_SIZE)
    if size == 0:
        raise section.error(key, "must not be 0")
    return size


def _modelopt(section: ConfigReader) -> Quantization:
    algorithm = section.text("quant_algo")
    if algorithm not in ("FP8", "NVFP4"):
        raise section.error("quant_algo", f"{algorithm!r} is not supported; supported are FP8 and NVFP4")
    return Quantization("modelopt")


def _block(section: ConfigReader, key: str) -> tuple[int, int]:
    rows, columns = section.integers(key) if len(section.integers(key)) == 2 else (0, 0)
    if not (0 < rows <= _MAX_SIZE and 0 < columns <= _MAX_SIZE):
        raise section.error(key, "must be a list of two sizes")
    return rows, columns


_METHODS: dict[str, Callable[[ConfigReader], Quantization]] = {
    "auto-round": _auto_round,
    "awq": _awq,
    "compressed-tensors": _compressed,
    "exl2": lambda section: Quantization("exl2"),
    "fbgemm_fp8": lambda section: Quantization("fbgemm_fp8"),
    "fp8": _float8,
    "gptq": _gptq,
    "modelopt": _modelopt,
    "mxfp4": lambda section: Quantization("mxfp4"),
}

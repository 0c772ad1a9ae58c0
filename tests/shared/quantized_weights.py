"""Writers of quantised weights: random codes in the layout of each format, and the weight that they stand for.

Layouts and formulas are written down from what the makers of the formats publish, element by element or bit by bit, and
share nothing with the readers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

Parts = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Written:
    """The tensors of a weight by their last names, and the weight, float32 ``[outputs, inputs]``."""

    parts: Parts
    dense: torch.Tensor


class Writer:
    """Writes random weights; every call continues one stream of random numbers."""

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)

    def codes(self, *shape: int, bits: int) -> np.ndarray:
        return self.random.integers(0, 1 << bits, shape)

    def scales(self, *shape: int, spread: float) -> np.ndarray:
        """Float16 numbers around ``spread``."""
        return (self.random.uniform(0.5, 1.5, shape) * spread).astype(np.float16)

    def order(self, inputs: int, size: int) -> np.ndarray:
        """The group of each input where groups are not neighbours."""
        return self.random.permutation(np.arange(inputs) // size)


def stream(codes: np.ndarray, bits: int) -> torch.Tensor:
    """Codes ``[rows, n]`` as a stream of bits along each row, the lowest first: int32 ``[rows, n * bits / 32]``."""
    flags = codes[..., None] >> np.arange(bits) & 1
    packed = np.packbits(flags.reshape(len(codes), -1).astype(np.uint8), axis=1, bitorder="little")
    return torch.from_numpy(packed.view("<i4").copy())


def words(codes: np.ndarray, bits: int) -> torch.Tensor:
    """Codes ``[rows, n]`` as a stream of bits whose last word is filled up with zeros."""
    used = -(-codes.shape[1] * bits // 32)
    return stream(np.pad(codes, ((0, 0), (0, -codes.shape[1] % 32))), bits)[:, :used].contiguous()


def dense(codes: np.ndarray, zeros: np.ndarray | int, scales: np.ndarray, groups: np.ndarray) -> torch.Tensor:
    """``(codes - zeros[group]) * scales[group]`` from arrays ``[outputs, inputs]`` and ``[outputs, groups]``."""
    zero = zeros[:, groups] if isinstance(zeros, np.ndarray) else zeros
    return torch.from_numpy(((codes - zero) * scales[:, groups].astype(np.float64)).astype(np.float32))


def pack_quantized(
    writer: Writer,
    outputs: int,
    inputs: int,
    bits: int = 4,
    size: int = 0,
    zeros: bool = False,
    ordered: bool = False,
    bytewise: bool = False,
) -> Written:
    """``pack-quantized`` of compressed-tensors; groups of ``size`` inputs, 0 for a scale a row, -1 for one of all.

    ``bytewise``: zero points as older versions store them, less the middle and a byte each.
    """
    of_input = writer.order(inputs, size) if ordered else np.arange(inputs) // (size if size > 0 else inputs)
    count = int(of_input.max()) + 1
    codes, middle = writer.codes(outputs, inputs, bits=bits), 1 << bits - 1
    scales = writer.scales(1 if size < 0 else outputs, count, spread=0.3 / middle)
    points = writer.codes(outputs, count, bits=bits)
    parts = {
        "weight_packed": words(codes, bits),
        "weight_shape": torch.tensor([outputs, inputs]),
        "weight_scale": torch.from_numpy(scales.ravel() if size < 0 else scales),
    }
    if zeros:
        plain = torch.from_numpy(points - middle).to(torch.int8)
        parts["weight_zero_point"] = plain if bytewise else words(points.T, bits).T.contiguous()
    if ordered:
        parts["weight_g_idx"] = torch.from_numpy(of_input).int()
    each = np.broadcast_to(scales, (outputs, count))
    return Written(parts, dense(codes, points if zeros else middle, each, of_input))


def int_quantized(writer: Writer, outputs: int, inputs: int, size: int = 0, zeros: bool = False) -> Written:
    """``int-quantized`` of compressed-tensors: signed bytes, with zero points likewise."""
    of_input = np.arange(inputs) // (size or inputs)
    codes = writer.codes(outputs, inputs, bits=8) - 128
    scales = writer.scales(outputs, int(of_input.max()) + 1, spread=0.003)
    points = writer.codes(*scales.shape, bits=8) - 128
    parts = {"weight": torch.from_numpy(codes.astype(np.int8)), "weight_scale": torch.from_numpy(scales)}
    if zeros:
        parts["weight_zero_point"] = torch.from_numpy(points.astype(np.int8))
    return Written(parts, dense(codes, points if zeros else 0, scales, of_input))


def e4m3(codes: np.ndarray) -> np.ndarray:
    """Numbers of a sign, four bits of exponent and three of mantissa."""
    sign, exponent, mantissa = codes >> 7, codes >> 3 & 15, codes & 7
    magnitude = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    return np.where(sign == 1, -magnitude, magnitude)


def e2m1(codes: np.ndarray) -> np.ndarray:
    """Numbers of a sign, two bits of exponent and one of mantissa."""
    sign, exponent, mantissa = codes >> 3, codes >> 1 & 3, codes & 1
    magnitude = np.where(exponent == 0, mantissa / 2, (1 + mantissa / 2) * 2.0 ** (exponent - 1.0))
    return np.where(sign == 1, -magnitude, magnitude)


def _float8_codes(writer: Writer, *shape: int) -> np.ndarray:
    """Codes of numbers of at most 15."""
    codes = writer.codes(*shape, bits=8)
    return codes & 0x80 | np.minimum(codes & 0x7F, 0x57)


def fp8(writer: Writer, outputs: int, inputs: int, block: tuple[int, int], name: str = "weight_scale") -> Written:
    """FP8 with a scale for each block; a side of 0 is a whole one."""
    rows, columns = block[0] or outputs, block[1] or inputs
    codes = _float8_codes(writer, outputs, inputs)
    scales = writer.scales(-(-outputs // rows), -(-inputs // columns), spread=0.03).astype(np.float32)
    every = scales[np.arange(outputs) // rows][:, np.arange(inputs) // columns]
    stored = torch.from_numpy(codes.astype(np.uint8)).view(torch.float8_e4m3fn)
    weight = torch.from_numpy((e4m3(codes) * every).astype(np.float32))
    return Written({"weight": stored, name: torch.from_numpy(scales)}, weight)


def _pairs(codes: np.ndarray) -> torch.Tensor:
    return torch.from_numpy((codes[:, ::2] + 16 * codes[:, 1::2]).astype(np.uint8))


def mxfp8(writer: Writer, outputs: int, inputs: int) -> Written:
    """``mxfp8-quantized`` of compressed-tensors: FP8 with exponents for 32 inputs each."""
    codes = _float8_codes(writer, outputs, inputs)
    exponents = writer.random.integers(119, 124, (outputs, inputs // 32))
    stored = torch.from_numpy(codes.astype(np.uint8)).view(torch.float8_e4m3fn)
    weight = e4m3(codes) * (2.0 ** (exponents - 127))[:, np.arange(inputs) // 32]
    parts = {"weight": stored, "weight_scale": torch.from_numpy(exponents.astype(np.uint8))}
    return Written(parts, torch.from_numpy(weight.astype(np.float32)))


def mxfp4(writer: Writer, outputs: int, inputs: int) -> Written:
    """``mxfp4-pack-quantized`` of compressed-tensors: exponents for 32 inputs each."""
    codes = writer.codes(outputs, inputs, bits=4)
    exponents = writer.random.integers(119, 124, (outputs, -(-inputs // 32)))
    scales = 2.0 ** (exponents - 127)
    parts = {"weight_packed": _pairs(codes), "weight_scale": torch.from_numpy(exponents.astype(np.uint8))}
    return Written(parts, torch.from_numpy((e2m1(codes) * scales[:, np.arange(inputs) // 32]).astype(np.float32)))


def mxfp4_experts(writer: Writer, experts: int, outputs: int, inputs: int) -> Written:
    """MXFP4 of all experts as gpt-oss has it, in blocks of 32 inputs; the weight is ``[experts, inputs, outputs]``."""
    each = [mxfp4(writer, outputs, inputs) for _ in range(experts)]
    parts = {
        "blocks": torch.stack([one.parts["weight_packed"].view(outputs, -1, 16) for one in each]),
        "scales": torch.stack([one.parts["weight_scale"] for one in each]),
    }
    return Written(parts, torch.stack([one.dense.T for one in each]).contiguous())


def nvfp4(writer: Writer, outputs: int, inputs: int, maker: str = "compressed-tensors") -> Written:
    """NVFP4: scales in E4M3 for 16 inputs each, and a factor of all; compressed-tensors divides by it."""
    codes = writer.codes(outputs, inputs, bits=4)
    scale_codes = _float8_codes(writer, outputs, inputs // 16) & 0x7F
    factor = float(writer.random.uniform(0.01, 0.02))
    scales = torch.from_numpy(scale_codes.astype(np.uint8)).view(torch.float8_e4m3fn)
    weight = e2m1(codes) * e4m3(scale_codes)[:, np.arange(inputs) // 16]
    if maker == "modelopt":
        parts = {"weight": _pairs(codes), "weight_scale": scales, "weight_scale_2": torch.tensor(factor)}
        return Written(parts, torch.from_numpy((weight * factor).astype(np.float32)))
    divisor = torch.tensor([1 / factor])
    parts = {"weight_packed": _pairs(codes), "weight_scale": scales, "weight_global_scale": divisor}
    return Written(parts, torch.from_numpy((weight / divisor.double().numpy()).astype(np.float32)))


def gptq(
    writer: Writer,
    outputs: int,
    inputs: int,
    bits: int = 4,
    size: int = 32,
    version: int = 1,
    ordered: bool = False,
    symmetric: bool = False,
    order: np.ndarray | None = None,
) -> Written:
    """GPTQ: streams of codes down the columns; the first version stores zero points less one, 0 as the highest code.

    The number of outputs is rounded up to a multiple of 32. ``order``: the position of each input, random if
    ``ordered``.
    """
    wanted, outputs = outputs, -(-outputs // 32) * 32
    of_input = writer.order(inputs, size) if ordered else np.arange(inputs) // size
    of_input = of_input if order is None else order // size
    count = int(of_input.max()) + 1
    codes, points = writer.codes(outputs, inputs, bits=bits), writer.codes(outputs, count, bits=bits)
    if symmetric:
        points = np.full_like(points, 1 << bits - 1)
    scales = writer.scales(outputs, count, spread=0.3 / (1 << bits - 1))
    stored = (points - (version == 1)) % (1 << bits)
    parts = {
        "qweight": stream(codes, bits).T.contiguous(),
        "qzeros": stream(stored.T, bits),
        "scales": torch.from_numpy(scales).T.contiguous(),
        "g_idx": torch.from_numpy(of_input).int(),
    }
    return Written(parts, dense(codes, points, scales, of_input)[:wanted])


def awq(writer: Writer, outputs: int, inputs: int, size: int = 32) -> Written:
    """AWQ, ``gemm``: eight outputs to a word, in the order 0, 2, 4, 6, 1, 3, 5, 7; outputs are rounded up."""
    wanted, outputs = outputs, -(-outputs // 32) * 32
    of_input = np.arange(inputs) // size
    count = int(of_input.max()) + 1
    codes, points = writer.codes(outputs, inputs, bits=4), writer.codes(outputs, count, bits=4)
    scales = writer.scales(outputs, count, spread=0.04)
    order = np.arange(outputs).reshape(-1, 8)[:, [0, 2, 4, 6, 1, 3, 5, 7]].ravel()
    parts = {
        "qweight": words(codes.T[:, order], 4),
        "qzeros": words(points.T[:, order], 4),
        "scales": torch.from_numpy(scales).T.contiguous(),
    }
    return Written(parts, dense(codes, points, scales, of_input)[:wanted])


def exl2(
    writer: Writer,
    outputs: int,
    inputs: int,
    groups: tuple[tuple[int, int], ...],
    order: np.ndarray | None = None,
) -> Written:
    """EXL2: groups of (bits of a code, inputs), with the inputs in another order.

    ``order``: the position of each input; by default random.
    """
    columns = -(-outputs // 32) * 32
    codes = [writer.codes(columns, count, bits=bits) for bits, count in groups]
    packed = [stream(part, bits).T for part, (bits, _) in zip(codes, groups, strict=True)]
    starts = np.cumsum([0] + [len(part) for part in packed[:-1]])
    roots = writer.codes(len(groups), columns, bits=4)
    highest = writer.scales(len(groups), spread=0.6) / np.array([1 << bits - 1 for bits, _ in groups], np.float16)
    place = writer.random.permutation(inputs) if order is None else order
    scales = ((roots + 1) ** 2).astype(np.float16) * (highest / np.float16(256))[:, None]
    values = [
        (part - (1 << bits - 1)) * scale[:, None].astype(np.float64)
        for part, (bits, _), scale in zip(codes, groups, scales, strict=True)
    ]
    parts = {
        "q_weight": torch.cat(packed).contiguous(),
        "q_groups": torch.tensor(
            [number for (bits, _), start in zip(groups, starts, strict=True) for number in (bits, start)]
        ).short(),
        "q_scale": words(roots, 4),
        "q_scale_max": torch.from_numpy(highest),
        "q_invperm": torch.from_numpy(place).int(),
    }
    weight = np.concatenate(values, axis=1)[:, place]
    return Written(parts, torch.from_numpy(weight[:outputs].astype(np.float32, order="C")))

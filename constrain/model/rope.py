"""Rotary position embedding: frequencies of every scaling method, and tables of their cosines and sines.

Formulas: plain RoPE, Su et al. 2021; linear scaling, Chen et al. 2023; NTK alpha, scaling of the base by
``alpha ** (d / (d - 2))``; YaRN, Peng et al. 2023, section 3; LongRoPE ("su"), Ding et al. 2024; "llama3", the
Llama 3.1 release. Where published implementations differ, this is the arithmetic of ``transformers``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from constrain.model.config_reader import ConfigReader

_log = logging.getLogger(__name__)

_METHODS: Mapping[str, str | None] = {
    "default": None,
    "mrope": None,  # for text alone, positions on all axes are the same
    "dynamic": "dynamic",
    "linear": "linear",
    "llama3": "llama3",
    "yarn": "yarn",
    "su": "su",
    "longrope": "su",
}
_MAX_LENGTH = 1 << 27


@dataclass(frozen=True)
class RopeParameters:
    """Parameters of rotary position embedding in a config.

    Attributes:
        theta: base of the geometric series of frequencies.
        method: ``None`` (plain), ``"dynamic"`` (plain up to the original length, and only that far read), ``"linear"``,
            ``"llama3"``, ``"yarn"`` or ``"su"``.
        dim: number of rotated features of a head.
        factor: ratio of the context length to that of pretraining.
        original_length: context length of pretraining, in tokens.
        amplitude: factor of cosines and sines.
        score_factor: factor of the scores of latent attention, only some of whose features are rotated ("yarn").
        low_freq_factor, high_freq_factor: bounds of the llama3 bands.
        beta_fast, beta_slow, truncate: bounds of the YaRN ramp, in rotations over the original context.
        short_factor, long_factor: divisors of each frequency for contexts up to, and beyond, the original one ("su").
        scores_scaled: beyond the original length, scores change with the position, which is not read.
        axes: the axis, 0 to 2, by which each pair of features turns; empty: there is one axis.
    """

    theta: float
    dim: int
    method: str | None = None
    factor: float = 1.0
    original_length: int = 0
    amplitude: float = 1.0
    score_factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    short_factor: tuple[float, ...] = ()
    long_factor: tuple[float, ...] = ()
    scores_scaled: bool = False
    axes: tuple[int, ...] = ()


def read_axes(reader: ConfigReader, sections: tuple[int, int, int], interleaved: bool, pairs: int) -> tuple[int, ...]:
    """Read by which of three axes each of some pairs of features turns (M-RoPE).

    Args:
        reader: of the config.
        sections: numbers of pairs for each axis, where the config has none.
        interleaved: whether the axes alternate, where the config does not say it.
        pairs: number of pairs.

    Raises:
        ConfigError: the sections are not those of as many pairs.
    """
    newer = reader.section("rope_parameters")
    scaling = newer if newer.has("mrope_section") else reader.section("rope_scaling")
    found = scaling.integers("mrope_section") if scaling.has("mrope_section") else sections
    if len(found) != 3 or sum(found) != pairs:
        raise scaling.error("mrope_section", f"{list(found)} are not three numbers with the sum {pairs}")
    if not scaling.boolean("mrope_interleaved", interleaved):
        return tuple(axis for axis, count in enumerate(found) for _ in range(count))
    axes = [0] * pairs
    for axis in (1, 2):
        axes[axis : 3 * found[axis] : 3] = [axis] * len(axes[axis : 3 * found[axis] : 3])
    return tuple(axes)


def read_rope(
    reader: ConfigReader, head_dim: int, max_length: int, partly: bool
) -> tuple[RopeParameters, RopeParameters]:
    """Read the parameters of full and of sliding layers, from a config of the older or the newer form.

    Older: ``rope_theta``, ``rope_scaling`` and ``rope_local_base_freq``. Newer: ``rope_parameters``, either one object
    or one for each kind of layer.

    Args:
        reader: of the config.
        head_dim: number of features of a head.
        max_length: context length of the model, in tokens.
        partly: whether the config says how many of the features are rotated; otherwise all are.

    Raises:
        ConfigError: a value is missing, of the wrong type or out of bounds, or the method is unknown.
    """
    newer = reader.section("rope_parameters")
    if newer.has("full_attention") or newer.has("sliding_attention"):
        full, sliding = newer.section("full_attention"), newer.section("sliding_attention")
    else:
        full = newer if newer.sources[0] else reader.section("rope_scaling")
        sliding = ConfigReader(reader.path, [{}]) if reader.has("rope_local_base_freq") else full
    theta = reader.number("rope_theta", 10_000.0)
    everywhere = _read_parameters(full, reader, theta, head_dim, max_length, partly)
    if sliding is full:
        return everywhere, everywhere
    local_theta = reader.number("rope_local_base_freq", theta)
    return everywhere, _read_parameters(sliding, reader, local_theta, head_dim, max_length, partly)


def _read_parameters(
    scaling: ConfigReader, config: ConfigReader, theta: float, head_dim: int, max_length: int, partly: bool
) -> RopeParameters:
    name = scaling.text("rope_type", None) or scaling.text("type", "default")
    if name == "default" and scaling.has("factor") and not (scaling.has("rope_type") or scaling.has("type")):
        raise scaling.error("rope_type", f"missing; known methods are {', '.join(_METHODS)}")
    if name == "dynamic" and scaling.raw("alpha", None) is not None:
        raise scaling.error("alpha", "is not supported with the method 'dynamic'")
    if name == "yarn" and scaling.has("long_factor"):
        name = "su"  # the name in early Phi-3 configs
    if name not in _METHODS:
        raise scaling.error("rope_type", f"unknown method {name!r}; known are {', '.join(_METHODS)}")
    method = _METHODS[name]
    dim = _rotated_features(scaling, config, head_dim, partly)
    if dim < 2 or dim % 2:
        raise config.error("head_dim", f"{dim} rotated features; RoPE needs an even number of at least 2")
    original = config.integer("original_max_position_embeddings", max_length, high=_MAX_LENGTH)
    values: dict[str, Any] = {
        "theta": scaling.number("rope_theta", theta, low=1.0),
        "dim": dim,
        "method": method,
        "original_length": scaling.integer("original_max_position_embeddings", original, high=_MAX_LENGTH),
    }
    values["scores_scaled"] = scaling.number("llama_4_scaling_beta", None) is not None
    if method in ("linear", "llama3", "yarn"):
        values["factor"] = scaling.number("factor", high=1e6)
    if method == "llama3":
        values["low_freq_factor"] = scaling.number("low_freq_factor")
        values["high_freq_factor"] = scaling.number("high_freq_factor")
        if values["high_freq_factor"] < values["low_freq_factor"]:
            raise scaling.error("high_freq_factor", f"must be at least {values['low_freq_factor']:g}")
    if method == "yarn":
        values["beta_fast"] = scaling.number("beta_fast", 32.0)
        values["beta_slow"] = scaling.number("beta_slow", 1.0)
        values["truncate"] = scaling.boolean("truncate", True)
        values["amplitude"] = scaling.number("attention_factor", None) or _yarn_amplitude(scaling, values["factor"])
        all_dim = scaling.number("mscale_all_dim", None, low=-1.0)
        values["score_factor"] = _yarn_term(all_dim, values["factor"]) ** 2 if all_dim else 1.0
    if method == "su":
        values["short_factor"] = scaling.numbers("short_factor", dim // 2)
        values["long_factor"] = scaling.numbers("long_factor", dim // 2)
        factor = scaling.number("factor", None) or max_length / values["original_length"]
        values["factor"] = factor
        values["amplitude"] = scaling.number("attention_factor", None) or _su_amplitude(
            factor, values["original_length"]
        )
    return RopeParameters(**values)


def _rotated_features(scaling: ConfigReader, config: ConfigReader, head_dim: int, partly: bool) -> int:
    partial = config.number("partial_rotary_factor", 1.0, high=1.0)
    partial = scaling.number("partial_rotary_factor", partial, high=1.0)
    dim: int = config.integer("rotary_dim", int(head_dim * partial), high=head_dim)
    if partly or dim == head_dim:
        return dim
    # As transformers does with the default method; other programs rotate fewer.
    _log.warning(
        "%s: has rotary_dim or partial_rotary_factor for %d of %d features of a head, but all are rotated: "
        "models of this architecture have no others",
        config.path,
        dim,
        head_dim,
    )
    return head_dim


def _yarn_amplitude(scaling: ConfigReader, factor: float) -> float:
    mscale, all_dim = scaling.number("mscale", None, low=-1.0), scaling.number("mscale_all_dim", None, low=-1.0)
    return _yarn_term(mscale, factor) / _yarn_term(all_dim, factor) if mscale and all_dim else _yarn_term(1.0, factor)


def _yarn_term(weight: float, factor: float) -> float:
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def _su_amplitude(factor: float, original_length: int) -> float:
    return math.sqrt(1 + math.log(factor) / math.log(original_length)) if factor > 1 and original_length > 1 else 1.0


def inverse_frequencies(rope: RopeParameters, alpha: float = 1.0, context: int = 0) -> torch.Tensor:
    """Compute the angle per position of each pair of features, float32 ``[dim / 2]``.

    Args:
        rope: the parameters.
        alpha: NTK scaling of the base.
        context: maximum length of sequences, which selects one of the two sets of frequencies of "su".
    """
    theta = rope.theta * alpha ** (rope.dim / (rope.dim - 2)) if rope.dim > 2 else rope.theta
    powers = theta ** (torch.arange(0, rope.dim, 2, dtype=torch.float) / rope.dim)
    plain = 1.0 / powers
    if rope.method == "su":
        factors = rope.long_factor if context > rope.original_length else rope.short_factor
        return 1.0 / (torch.tensor(factors) * powers)
    if rope.method == "linear":
        plain = plain / rope.factor
    elif rope.method == "llama3":
        plain = _llama3(rope, plain)
    elif rope.method == "yarn":
        plain = _yarn(rope, theta, powers)
    return plain


def _llama3(rope: RopeParameters, plain: torch.Tensor) -> torch.Tensor:
    """Divide low frequencies by ``factor``, leave high ones unchanged, and interpolate by rotations in between."""
    rotations = rope.original_length * plain / (2 * math.pi)
    width = rope.high_freq_factor - rope.low_freq_factor
    blend = ((rotations - rope.low_freq_factor) / width).clamp(0.0, 1.0) if width else rotations >= rope.low_freq_factor
    blend = blend.to(plain.dtype)
    return (1 - blend) * plain / rope.factor + blend * plain


def _yarn(rope: RopeParameters, theta: float, powers: torch.Tensor) -> torch.Tensor:
    """Interpolate from features with ``beta_fast`` rotations in the original context to those with ``beta_slow``."""

    def feature_with(rotations: float) -> float:
        return rope.dim * math.log(rope.original_length / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = feature_with(rope.beta_fast), feature_with(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.dim - 1)
    width = high - low if high != low else 0.001
    interpolated = ((torch.arange(rope.dim // 2, dtype=torch.float) - low) / width).clamp(0.0, 1.0)
    return interpolated / (rope.factor * powers) + (1 - interpolated) / powers


class RotaryTable:
    """Table of cosines and sines by position, which grows on demand.

    Args:
        rope: the parameters.
        scale: positions are divided by this.
        alpha: NTK scaling of the base.
        dtype: dtype of the table.
        context: maximum length of sequences. Frequencies depend on it, and not on the length of each sequence: keys
            in a cache keep the rotation that they had when they were computed.
    """

    def __init__(self, rope: RopeParameters, scale: float, alpha: float, dtype: torch.dtype, context: int = 0) -> None:
        self._rope, self._dtype = rope, dtype
        self._frequencies = inverse_frequencies(rope, alpha, context) / scale
        self._tables: dict[torch.device, tuple[torch.Tensor, torch.Tensor]] = {}

    def rows(
        self, positions: slice | torch.Tensor, end: int, device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines in the form that :func:`constrain.kernels.rotate` takes.

        Args:
            positions: a range, or ``[batch, length]`` on ``device``.
            end: length of the sequence; all positions are below it.
            device: device of the result.

        Returns:
            Two tensors ``[1 or batch, length, 1, dim]``.
        """
        cos, sin = self._table(end, device)
        if isinstance(positions, slice):
            return cos[positions].unsqueeze(0), sin[positions].unsqueeze(0)
        return cos[positions], sin[positions]

    def mixed_rows(self, positions: torch.Tensor, end: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of positions on three axes, each pair of features by its own axis.

        Args:
            positions: int64 ``[3, length]``, all below ``end``.
            end: length of the sequence.
            device: device of the result.

        Returns:
            Two tensors ``[1, length, 1, dim]``.
        """
        index = positions[torch.tensor(self._rope.axes * 2)].T.to(device)
        cos, sin = (part[:, 0].gather(0, index)[None, :, None] for part in self._table(end, device))
        return cos, sin

    def whole(self, end: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of at least all positions below ``end``, ``[positions, 1, dim]``."""
        return self._table(end, device)

    def _table(self, end: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        table = self._tables.get(device)
        if table is None or table[0].shape[0] < end:
            table = self._tables[device] = self._compute(1 << max(10, (end - 1).bit_length()), device)
        return table

    def _compute(self, length: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        angles = torch.outer(torch.arange(length, dtype=torch.float), self._frequencies)
        cos, sin = angles.cos() * self._rope.amplitude, angles.sin() * self._rope.amplitude
        full = torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
        return full[0].unsqueeze(1).to(device, self._dtype), full[1].unsqueeze(1).to(device, self._dtype)

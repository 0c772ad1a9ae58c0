"""The part of a config that describes multi-head latent attention."""

from __future__ import annotations

from dataclasses import dataclass

from constrain.model.config_reader import ConfigReader

_MAX_WIDTH = 1 << 20


@dataclass(frozen=True)
class LatentConfig:
    """Sizes of multi-head latent attention (DeepSeek-V2 report, 2024, section 2.1).

    Attributes:
        rank: features of the latent state that keys and values of all heads are made of.
        query_rank: features of the state that queries are made of; ``None``: of the hidden state.
        plain, rotated: features of a query or key without and with rotation.
        value: features of a value.
    """

    rank: int
    query_rank: int | None
    plain: int
    rotated: int
    value: int

    @property
    def query(self) -> int:
        """Number of features of a query."""
        return self.plain + self.rotated

    @property
    def stored(self) -> int:
        """Number of features of a position in the cache: those that are rotated, and the latent state."""
        return self.rotated + self.rank


def read_latent(reader: ConfigReader) -> LatentConfig:
    """Read the keys of a config that describe multi-head latent attention.

    Raises:
        ConfigError: a value is missing, of the wrong type or out of bounds.
    """
    return LatentConfig(
        rank=reader.integer("kv_lora_rank", high=_MAX_WIDTH),
        query_rank=reader.integer("q_lora_rank", None, high=_MAX_WIDTH),
        plain=reader.integer("qk_nope_head_dim", high=_MAX_WIDTH),
        rotated=reader.integer("qk_rope_head_dim", high=_MAX_WIDTH),
        value=reader.integer("v_head_dim", high=_MAX_WIDTH),
    )

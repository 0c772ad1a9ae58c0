"""The part of a config that describes mixtures of experts."""

from __future__ import annotations

from dataclasses import dataclass

from constrain.kernels import Routing
from constrain.model.config_reader import ConfigReader
from constrain.model.traits import ExpertTraits

_MAX_EXPERTS = 1 << 12
_MAX_WIDTH = 1 << 20


@dataclass(frozen=True)
class ExpertConfig:
    """Mixtures of experts of a model.

    Attributes:
        traits: names of tensors.
        count: number of experts of a layer.
        size: number of inner features of an expert.
        shared_size: of the MLP that all tokens pass through; 0 without one.
        routing: the choice of experts.
        layers: for each layer, whether it has experts in place of an MLP.
    """

    traits: ExpertTraits
    count: int
    size: int
    shared_size: int
    routing: Routing
    layers: tuple[bool, ...]


def read_experts(reader: ConfigReader, traits: ExpertTraits, layers: int) -> ExpertConfig:
    """Read the keys of a config that describe mixtures of experts.

    Raises:
        ConfigError: a value is missing, of the wrong type or out of bounds.
    """
    count = reader.integer(traits.count_key, high=_MAX_EXPERTS)
    shared = reader.integer(traits.shared_size_key, high=_MAX_WIDTH) if traits.names.shared else 0
    return ExpertConfig(
        traits=traits,
        count=count,
        size=reader.integer(traits.size_key, high=_MAX_WIDTH),
        shared_size=shared,
        routing=_read_routing(reader, traits, count),
        layers=tuple(traits.sparse(reader, layer) for layer in range(layers)),
    )


def _read_routing(reader: ConfigReader, traits: ExpertTraits, count: int) -> Routing:
    normalised = traits.normalised
    return Routing(
        chosen=reader.integer("num_experts_per_tok", high=count),
        scoring=traits.scoring,
        normalised=reader.boolean("norm_topk_prob", False) if normalised is None else normalised,
    )

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
    count = _read_count(reader, traits)
    return ExpertConfig(
        traits=traits,
        count=count,
        size=reader.integer(traits.size_key, high=_MAX_WIDTH),
        shared_size=_read_shared_size(reader, traits),
        routing=_read_routing(reader, traits, count),
        layers=tuple(traits.sparse(reader, layer) for layer in range(layers)),
    )


def _read_count(reader: ConfigReader, traits: ExpertTraits) -> int:
    newer = reader.integer(traits.newer_count_key, None, high=_MAX_EXPERTS) if traits.newer_count_key else None
    return int(newer or reader.integer(traits.count_key, high=_MAX_EXPERTS))


def _read_shared_size(reader: ConfigReader, traits: ExpertTraits) -> int:
    if not traits.names.shared:
        return 0
    if not traits.grouped:
        return int(reader.integer(traits.shared_size_key, high=_MAX_WIDTH))
    size = reader.integer(traits.size_key, high=_MAX_WIDTH)
    return int(size * reader.integer(traits.shared_count_key, 1, low=0, high=_MAX_WIDTH // size))


def _read_groups(reader: ConfigReader, count: int) -> tuple[int, int]:
    """Read the number of groups of experts, and that of the groups which are chosen."""
    if reader.text("topk_method", None) == "greedy":
        return 1, 1
    groups = reader.integer("n_group", 1, high=max(1, count // 2))
    chosen = reader.integer("topk_group", 1, high=groups)
    if count % groups:
        raise reader.error("n_group", f"{groups} does not divide the {count} experts")
    return groups, chosen


def _read_routing(reader: ConfigReader, traits: ExpertTraits, count: int) -> Routing:
    normalised = traits.normalised
    groups, chosen_groups = _read_groups(reader, count) if traits.grouped else (1, 1)
    return Routing(
        chosen=reader.integer(traits.chosen_key, high=count // groups * chosen_groups),
        scoring=traits.scoring,
        normalised=reader.boolean("norm_topk_prob", False) if normalised is None else normalised,
        scale=reader.number("routed_scaling_factor", 1.0) if traits.grouped else 1.0,
        groups=groups,
        chosen_groups=chosen_groups,
        best_of_group=traits.best_of_group if groups > 1 else 1,
    )

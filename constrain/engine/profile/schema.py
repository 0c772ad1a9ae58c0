"""The profile of a schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from constrain.engine.profile.costs import MaskCost, MaskTimes


@dataclass(frozen=True)
class SchemaProfile:
    """Costs of a schema.

    Attributes:
        compile_seconds: time to compile it.
        first_mask_seconds: time from the schema to its first mask.
        states: states of the parse table after compilation.
        final_states: states after all masks; they are created in use.
        nbytes: memory of the grammar after all masks, in bytes.
        documents: number of documents given, and of those sampled.
        first: masks along the documents, the first time that a server sees them.
        again: the same once more, with the caches that the first pass has filled.
        within_budget: the same, with as many tokens left as the rest of the document takes.
        counters: counters of the grammar after all masks, see :attr:`constrain.engine.CompiledGrammar.counters`.
    """

    compile_seconds: float
    first_mask_seconds: float
    states: int
    final_states: int
    nbytes: int
    documents: tuple[int, int]
    first: tuple[MaskCost, ...]
    again: tuple[MaskCost, ...]
    within_budget: tuple[MaskCost, ...]
    counters: dict[str, int]

    @property
    def passes(self) -> dict[str, Sequence[MaskCost]]:
        """The masks of each pass over the documents, by its name."""
        return {"first": self.first, "again": self.again, "within_budget": self.within_budget}

    def slowest(self, count: int = 5) -> list[tuple[str, MaskCost]]:
        """Return the slowest masks, at most one for each place in the schema, with the names of their passes."""
        masks = [(name, mask) for name, costs in self.passes.items() for mask in costs]
        places: dict[str, tuple[str, MaskCost]] = {}
        for name, mask in sorted(masks, key=lambda each: -each[1].seconds):
            places.setdefault(_without_indices(mask.pointer), (name, mask))
        return list(places.values())[:count]

    def json(self, count: int = 5) -> dict[str, Any]:
        """Return the profile as JSON types, with its slowest masks."""
        return {
            "compile_seconds": self.compile_seconds,
            "first_mask_seconds": self.first_mask_seconds,
            "states": self.states,
            "final_states": self.final_states,
            "bytes": self.nbytes,
            "documents": {"given": self.documents[0], "sampled": self.documents[1]},
            "masks": {name: asdict(MaskTimes.of(costs)) for name, costs in self.passes.items()},
            "slowest": [{"pass": name, **asdict(mask), "reason": mask.reason} for name, mask in self.slowest(count)],
            "counters": self.counters,
        }


def _without_indices(pointer: str) -> str:
    return "/".join("*" if step.isdigit() else step for step in pointer.split("/"))

"""The ``adapter_config.json`` of a low-rank adapter."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from constrain.model.config_reader import ConfigReader
from constrain.tokenizer.files import read_json_object

_MAX_RANK = 1 << 16
_BASE = "base_model.model."
_NAME = re.compile(r"\^?[\w.]+\$?")
#: Settings under which adapters compute something else, and the values that they have in others.
_UNSUPPORTED: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("fan_in_fan_out", (False,)),
    ("use_dora", (False,)),
    ("use_qalora", (False,)),
    ("layer_replication", ()),
    ("alora_invocation_tokens", ()),
)
#: Initialisations that change the weights of the model, so that an adapter belongs to these; some names go on, such as
#: "pissa_niter_4".
_CHANGING = ("pissa", "olora", "corda", "loftq", "lora_ga")


@dataclass(frozen=True)
class LoraConfig:
    """Rank and scaling of an adapter; some layers may have others.

    Attributes:
        rank, alpha: of the layers that no pattern names.
        stabilised: whether alpha is divided by the root of the rank, in place of the rank.
        ranks, alphas: by name of the layers, of which the first names may be left out; one with ``^`` is whole.
    """

    rank: int
    alpha: float
    stabilised: bool
    ranks: dict[str, int]
    alphas: dict[str, float]

    @classmethod
    def of_file(cls, path: Path) -> LoraConfig:
        """Read a file.

        Raises:
            ConfigError: it is malformed, or asks for something that is not supported.
        """
        reader = ConfigReader(path, [read_json_object(path)])
        if reader.text("peft_type", "LORA") != "LORA":
            raise reader.error("peft_type", f"{reader.raw('peft_type')!r} is not supported; supported is 'LORA'")
        for key, values in _UNSUPPORTED:
            if reader.raw(key, None) not in (None, *values):
                raise reader.error(key, f"{reader.raw(key)!r} is not supported")
        _check_initialisation(reader)
        ranks, alphas = _pattern(reader, "rank_pattern"), _pattern(reader, "alpha_pattern")
        return cls(
            rank=reader.integer("r", high=_MAX_RANK),
            alpha=reader.number("lora_alpha"),
            stabilised=reader.boolean("use_rslora", False),
            ranks={name: ranks.integer(name, high=_MAX_RANK) for name in ranks.sources[0]},
            alphas={name: alphas.number(name) for name in alphas.sources[0]},
        )

    @property
    def scaling(self) -> float:
        """Factor of the products of the layers that no pattern names."""
        return self._scaling(self.rank, self.alpha)

    def of_layer(self, name: str) -> tuple[int, float]:
        """Return rank and scaling of a layer by its name in the file of the adapter."""
        rank = _matching(self.ranks, name, self.rank)
        return rank, self._scaling(rank, _matching(self.alphas, name, self.alpha))

    def _scaling(self, rank: int, alpha: float) -> float:
        return alpha / (math.sqrt(rank) if self.stabilised else rank)


def _check_initialisation(reader: ConfigReader) -> None:
    name = reader.raw("init_lora_weights", None)
    if isinstance(name, str) and name.startswith(_CHANGING):
        raise reader.error(
            "init_lora_weights",
            f"{name!r} changes the weights of the model, to which the adapter belongs; convert it to one of the "
            "original weights with save_pretrained(path_initial_model_for_weight_conversion=...) of peft",
        )


def _pattern(reader: ConfigReader, key: str) -> ConfigReader:
    """Return a reader of values by names of layers, which ``peft`` takes for regular expressions; few use that."""
    pattern = reader.section(key)
    for name in pattern.sources[0]:
        if not _NAME.fullmatch(name):
            raise reader.error(key, f"{name!r} is not the name of a layer; regular expressions are not supported")
    return pattern


def _matching(values: dict[str, Any], name: str, default: Any) -> Any:
    """Return the value of the first name that is, or ends, that of the layer."""
    for key, value in values.items():
        wanted = key.removesuffix("$")
        whole = name.removeprefix(_BASE)
        if whole == wanted.removeprefix("^") or (not wanted.startswith("^") and whole.endswith(f".{wanted}")):
            return value
    return default

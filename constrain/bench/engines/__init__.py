"""The engines that can be measured, by name. Each is imported only in the process that runs it."""

from __future__ import annotations

from importlib import import_module

from constrain.bench.engines.base import Engine, Tokens

ENGINES = {
    "constrain": "constrain.bench.engines.constrain:Constrain",
    "llguidance": "constrain.bench.engines.llguidance:LLGuidance",
    "lm-format-enforcer": "constrain.bench.engines.lmfe:LMFormatEnforcer",
    "outlines-core": "constrain.bench.engines.outlines:OutlinesCore",
    "xgrammar": "constrain.bench.engines.xgrammar:XGrammar",
}


def engine_class(target: str) -> type[Engine]:
    """The class that ``module:Class`` names.

    Raises:
        ImportError: the package behind the engine is not installed.
    """
    module, _, attribute = target.partition(":")
    found: type[Engine] = getattr(import_module(module), attribute)
    return found


__all__ = ["ENGINES", "Engine", "Tokens", "engine_class"]

"""Registry of the benchmarked engines. Each is imported only in the process that runs it."""

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
    """Return the class named by ``module:Class``.

    Raises:
        ImportError: the engine's package is not installed.
    """
    module, _, attribute = target.partition(":")
    found: type[Engine] = getattr(import_module(module), attribute)
    return found


__all__ = ["ENGINES", "Engine", "Tokens", "engine_class"]

"""Schema-driven extraction on a runtime.

Names are imported on first use: the prompt format alone needs neither a model nor the engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from constrain.extract.calibration import Calibration
    from constrain.extract.extraction import Confidence, Extraction, Span, Usage
    from constrain.extract.extractor import Extractor
    from constrain.extract.fields import Evidence, Quote
    from constrain.extract.options import ExtractionOptions, ExtractOptions
    from constrain.extract.partial import ExtractionStream, Partial
    from constrain.extract.prompts.builtin import build_prompt
    from constrain.extract.prompts.choose import Prompt
    from constrain.extract.prompts.form import PromptForm
    from constrain.extract.target import Target

__all__ = [
    "Calibration",
    "Confidence",
    "Evidence",
    "ExtractOptions",
    "Extraction",
    "ExtractionOptions",
    "ExtractionStream",
    "Extractor",
    "Partial",
    "Prompt",
    "PromptForm",
    "Quote",
    "Span",
    "Target",
    "Usage",
    "build_prompt",
]

_HOMES = {
    "Calibration": "calibration",
    "Confidence": "extraction",
    "ExtractOptions": "options",
    "Evidence": "fields",
    "Extraction": "extraction",
    "ExtractionOptions": "options",
    "ExtractionStream": "partial",
    "Extractor": "extractor",
    "Partial": "partial",
    "Prompt": "prompts.choose",
    "PromptForm": "prompts.form",
    "build_prompt": "prompts.builtin",
    "Quote": "fields",
    "Span": "extraction",
    "Target": "target",
    "Usage": "extraction",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__

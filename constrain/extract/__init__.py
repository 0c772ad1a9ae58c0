"""Schema-driven extraction on a runtime.

Names are imported on first use: the prompt format alone needs neither a model nor the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from constrain.lazy import lazy_names

if TYPE_CHECKING:
    from constrain.extract.calibration import Calibration
    from constrain.extract.extraction import Confidence, Extraction, Span, Usage
    from constrain.extract.extractor import Extractor
    from constrain.extract.fields import Evidence, Quote
    from constrain.extract.mistakes import SchemaWarning
    from constrain.extract.options import ExtractionOptions, ExtractOptions
    from constrain.extract.partial import ExtractionStream, Partial
    from constrain.extract.prompts.builtin import build_prompt
    from constrain.extract.prompts.choose import Prompt
    from constrain.extract.prompts.form import PromptForm
    from constrain.extract.target import Target
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "constrain.extract.calibration": ["Calibration"],
            "constrain.extract.extraction": ["Confidence", "Extraction", "Span", "Usage"],
            "constrain.extract.extractor": ["Extractor"],
            "constrain.extract.fields": ["Evidence", "Quote"],
            "constrain.extract.mistakes": ["SchemaWarning"],
            "constrain.extract.options": ["ExtractionOptions", "ExtractOptions"],
            "constrain.extract.partial": ["ExtractionStream", "Partial"],
            "constrain.extract.prompts.builtin": ["build_prompt"],
            "constrain.extract.prompts.choose": ["Prompt"],
            "constrain.extract.prompts.form": ["PromptForm"],
            "constrain.extract.target": ["Target"],
        },
    )

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
    "SchemaWarning",
    "Span",
    "Target",
    "Usage",
    "build_prompt",
]

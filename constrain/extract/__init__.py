"""Schema-driven extraction on top of a generator."""

from constrain.extract.completion import Completion, FinishReason, complete
from constrain.extract.extractor import Extraction, Extractor, Prompt
from constrain.extract.prompt import build_prompt
from constrain.extract.target import Target

__all__ = ["Completion", "Extraction", "Extractor", "FinishReason", "Prompt", "Target", "build_prompt", "complete"]

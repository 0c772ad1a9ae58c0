"""Parts of a grammar back end of an inference server: constraints, vocabularies, and the state of an output."""

from __future__ import annotations

from constrain.integrations.serving.bitmasks import BitmaskArray
from constrain.integrations.serving.constraints import ConstraintKind, compile_constraint
from constrain.integrations.serving.output import ENGINE_ERRORS, OutputState
from constrain.integrations.serving.tokenizers import vocabulary_of

__all__ = ["ENGINE_ERRORS", "BitmaskArray", "ConstraintKind", "OutputState", "compile_constraint", "vocabulary_of"]

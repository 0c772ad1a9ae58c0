"""High-level interface to a model: load it from a folder, generate text, choose among options, extract records."""

from constrain.llm.base import GenerateOptions
from constrain.llm.constraints import make_filters
from constrain.llm.front import LLM
from constrain.llm.loading import DEFAULT_CONTEXT, load, load_model

__all__ = ["DEFAULT_CONTEXT", "LLM", "GenerateOptions", "load", "load_model", "make_filters"]

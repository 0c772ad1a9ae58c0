"""Helpers for tests of schemas, grammars and filters, which need no model, and for compiled grammars no torch."""

from constrain.testing.checks import MockModel, accepts, sample
from constrain.testing.vocabularies import byte_vocabulary, small_tokenizer, small_vocabulary

__all__ = ["MockModel", "accepts", "byte_vocabulary", "sample", "small_tokenizer", "small_vocabulary"]

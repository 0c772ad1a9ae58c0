"""Synthetic documents with schemas and gold records, from which the built-in model learns to extract."""

from __future__ import annotations

from constrain.demo.synth.documents import CLEAN, Example, Split, example

__all__ = ["CLEAN", "Example", "Split", "example"]

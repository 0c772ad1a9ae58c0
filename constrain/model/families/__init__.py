"""Decoders of all families, by their differences from plain Llama."""

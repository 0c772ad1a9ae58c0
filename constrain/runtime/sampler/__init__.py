"""Batched sampling of next tokens from the hidden states of a forward pass."""

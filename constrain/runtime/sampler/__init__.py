"""Token sampling for a decode batch, from the hidden states of its forward pass."""

"""Sampling of next tokens from the states of a forward pass, for all rows of a batch at once."""

"""The prompts of extractions, in the form that fits the model."""

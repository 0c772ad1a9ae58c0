"""Evaluation of extracted records against gold."""

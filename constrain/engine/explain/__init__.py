"""Explanations of refused texts and tokens."""

from constrain.engine.explain.text import Explanation, explain_text
from constrain.engine.explain.token import TokenExplanation, explain_token

__all__ = ["Explanation", "TokenExplanation", "explain_text", "explain_token"]

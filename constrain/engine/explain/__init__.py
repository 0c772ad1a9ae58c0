"""Why a text is not in a language, and why a token may not come next."""

from constrain.engine.explain.text import Explanation, explain_text
from constrain.engine.explain.token import TokenExplanation, explain_token

__all__ = ["Explanation", "TokenExplanation", "explain_text", "explain_token"]

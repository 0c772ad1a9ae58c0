"""Calls of functions: how families of models write them, as grammars, and read back."""

from constrain.serve.tools.choice import Function, ToolChoice
from constrain.serve.tools.forms import FORMS, CallForm, choose_form
from constrain.serve.tools.grammar import answer_format

__all__ = ["FORMS", "CallForm", "Function", "ToolChoice", "answer_format", "choose_form"]

"""Lark grammars that are generated from descriptions: SQL of given tables, calls of given functions."""

from constrain.engine.grammars.calls import lark_of_calls
from constrain.engine.grammars.sql import lark_of_sql

__all__ = ["lark_of_calls", "lark_of_sql"]

"""Costs of a JSON Schema: its compilation, and the masks along documents."""

from constrain.engine.profile.costs import MaskCost, MaskTimes
from constrain.engine.profile.measure import profile_schema
from constrain.engine.profile.schema import SchemaProfile

__all__ = ["MaskCost", "MaskTimes", "SchemaProfile", "profile_schema"]

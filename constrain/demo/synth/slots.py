"""Slots of families: values that documents may contain, and schemas may ask for."""

from __future__ import annotations

from dataclasses import dataclass

from constrain.demo.synth.kinds import Kind


@dataclass(frozen=True)
class Slot:
    """A value that documents of a family may contain.

    Attributes:
        key: its name in the wordings.
        kind: what values it takes.
        labels: what it is called, in lower case; field names and printed labels are sampled from these independently.
        about: a description for schemas, or ``""``.
        says: sentences that state the value at ``{}``.
        after: key of the slot of the same record whose date or time comes before its own, or ``""``.
    """

    key: str
    kind: Kind
    labels: tuple[str, ...]
    about: str = ""
    says: tuple[str, ...] = ()
    after: str = ""

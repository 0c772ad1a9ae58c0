"""Calibration: what share of values of a kind is right among those of a probability, and when to doubt a record."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from constrain.arguments import check_number, check_type
from constrain.errors import ArgumentError
from constrain.extract.curves import Curve, Isotonic, Logistic, curve_of
from constrain.extract.extraction import PRESENT, Confidence

#: Number of values from which on a kind has a curve of its own, and from which on that is an isotonic one.
MIN_VALUES, MIN_ISOTONIC = 30, 200
#: Name of the curve of all kinds that have none of their own.
OTHERS = "others"
#: Name of the calibration in the folder of a model, which holds unless another is given.
FILE_NAME = "constrain_calibration.json"
_MARGINS = ("null_margin", "end_margin")


class Sample(NamedTuple):
    """A value that is known to be right or wrong.

    Attributes:
        kind: its kind, see :func:`value_kind`.
        probability: its probability, without calibration.
        is_right: whether it is right.
    """

    kind: str
    probability: float
    is_right: bool


@dataclass(frozen=True)
class Calibration:
    """Curves that make probabilities the shares of right values, for each kind of value, and when to prefer null.

    Attributes:
        curves: by kind; that of :data:`OTHERS` is for kinds without one. Without any, probabilities are not changed.
        null_margin: how many times as probable as null a value has to be where the schema allows null; if it is less
            probable, it becomes null. 0: values are as the model writes them. ``None``: as the file in the folder of
            the model says, or 0.
        end_margin: how many times as probable as another item the end of a list has to be; if it is less probable, the
            list goes on. 0: lists end where the model ends them. ``None``: as for ``null_margin``.
    """

    curves: Mapping[str, Curve] = field(default_factory=dict)
    null_margin: float | None = None
    end_margin: float | None = None

    def __post_init__(self) -> None:
        check_type("curves", self.curves, Mapping, "curves by kind")
        check_number("null_margin", self.null_margin or 0, 0)
        check_number("end_margin", self.end_margin or 0, 0)

    @property
    def has_margins(self) -> bool:
        """Whether what a model writes may be changed."""
        return bool(self.null_margin or self.end_margin)

    @classmethod
    def fit(cls, samples: Iterable[Sample]) -> Calibration:
        """Fit curves to values.

        A kind of which there are at least 30 values has a curve of its own: from 200 values on by isotonic regression,
        and a logistic one below. All kinds together are the curve of the others.

        Raises:
            ArgumentError: there are fewer than 30 values.
        """
        kinds: defaultdict[str, list[Sample]] = defaultdict(list)
        for sample in samples:
            kinds[sample.kind].append(sample)
            kinds[OTHERS].append(sample)
        if len(kinds[OTHERS]) < MIN_VALUES:
            raise ArgumentError(f"a calibration needs at least {MIN_VALUES} values, not {len(kinds[OTHERS])}")
        return cls({kind: _fitted(group) for kind, group in kinds.items() if len(group) >= MIN_VALUES})

    @classmethod
    def of(cls, what: Calibration | str | Path | None) -> Calibration | None:
        """Return a calibration, which is read if ``what`` is a path; errors as for :meth:`load`."""
        check_type("calibration", what, (Calibration, str, Path, type(None)), "a Calibration, or the path of one")
        return cls.load(what) if isinstance(what, (str, Path)) else what

    @classmethod
    def of_model(cls, folder: str | Path | None, given: Calibration | None) -> Calibration | None:
        """Return ``given``, or the calibration in the model's folder, which also has the margins that ``given`` lacks.

        Raises:
            ArgumentError: the file cannot be read, or is no calibration.
        """
        path = None if folder is None else Path(folder) / FILE_NAME
        own = cls.load(path) if path is not None and path.is_file() else None
        if given is None or own is None:
            return given or own
        null = own.null_margin if given.null_margin is None else given.null_margin
        return replace(
            given, null_margin=null, end_margin=own.end_margin if given.end_margin is None else given.end_margin
        )

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Read a calibration from a file.

        Raises:
            ArgumentError: the file cannot be read, or is no calibration.
        """
        try:
            read = json.loads(Path(path).read_text(encoding="utf-8"))
            curves, margins = read["curves"], [read.get(name) for name in _MARGINS]
            first = {OTHERS: curve_of(curves[OTHERS])} if curves else {}
            return cls({**first, **{kind: curve_of(each) for kind, each in curves.items()}}, *margins)
        except OSError as error:
            raise ArgumentError(f"the calibration cannot be read: {error}") from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ArgumentError(f"{path} is no calibration, as `constrain calibrate` writes it: {error!r}") from error

    def to_json(self) -> dict[str, Any]:
        """Return the calibration as JSON."""
        curves = {kind: curve.to_json() for kind, curve in self.curves.items()}
        margins = {name: margin for name in _MARGINS if (margin := getattr(self, name)) is not None}
        return {"curves": curves, **margins}

    def save(self, path: str | Path) -> None:
        """Write the calibration to a file.

        Raises:
            ArgumentError: the file cannot be written.
        """
        try:
            Path(path).write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise ArgumentError(f"the calibration cannot be written: {error}") from error

    def probability(self, kind: str, probability: float) -> float:
        """Return the calibrated probability of a value."""
        curve = self.curves.get(kind) or self.curves.get(OTHERS)
        return probability if curve is None else curve.apply(probability)

    def calibrated(self, confidence: Confidence, kind: str, name: str) -> Confidence:
        """Calibrate the confidence of a value.

        Args:
            confidence: the confidence.
            kind: kind of the value.
            name: its name among its alternatives; the others share the rest in their proportions.
        """
        probability, alternatives = self.probability(kind, confidence.probability), confidence.alternatives
        if alternatives is not None and name in alternatives:
            alternatives = _scaled(alternatives, name, probability)
        return replace(confidence, probability=probability, alternatives=alternatives)


def value_kind(value: Any, alternatives: Mapping[str, float] | None, has_span: bool) -> str:
    """Return the kind of a leaf of a record.

    Args:
        value: the leaf.
        alternatives: its alternatives, if they are known.
        has_span: whether it is known where the document says it.

    Returns:
        ``"absent"`` (null, or an empty list or object), ``"boolean"``, ``"enum"``, ``"number"``, ``"quote"`` or
        ``"string"``.
    """
    if value in (None, [], {}):
        return "absent"
    if isinstance(value, bool):
        return "boolean"
    if alternatives is not None and PRESENT not in alternatives:
        return "enum"
    if isinstance(value, (int, float)):
        return "number"
    return "quote" if has_span else "string"


def _fitted(samples: list[Sample]) -> Curve:
    probabilities = np.array([sample.probability for sample in samples])
    is_right = np.array([float(sample.is_right) for sample in samples])
    return (Isotonic if len(samples) >= MIN_ISOTONIC else Logistic).fit(probabilities, is_right)


def _scaled(alternatives: Mapping[str, float], name: str, probability: float) -> dict[str, float]:
    """Give an alternative a probability; the others share the rest as before, or evenly if they had nothing."""
    others = {other: share for other, share in alternatives.items() if other != name}
    if not others:
        return dict(alternatives)
    total, rest = sum(others.values()), 1 - probability
    scaled = {other: rest * share / total if total else rest / len(others) for other, share in others.items()}
    return dict(sorted({name: probability, **scaled}.items(), key=lambda item: -item[1]))

"""Plots as SVG. They hold numbers only, so nothing in them needs to be escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from constrain.evaluation.reliability import Bin, RiskPoint

#: Size of a plot and the room for its labels, in pixels.
WIDTH, HEIGHT, LEFT, BOTTOM, MARGIN = 380, 300, 52, 42, 18
#: Number of parts that an axis is divided into.
TICKS = 4
#: Upper ends that an axis may have.
TOPS = (0.001, 0.002, 0.004, 0.01, 0.02, 0.04, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True)
class Axes:
    """Axes of two shares, the horizontal one from 0 to 1 and the vertical one from 0 to ``top``."""

    horizontal: str
    vertical: str
    top: float = 1.0

    def x(self, share: float) -> float:
        """Return the position of a share on the horizontal axis."""
        return round(LEFT + share * (WIDTH - LEFT - MARGIN), 1)

    def y(self, share: float) -> float:
        """Return the position of a share on the vertical axis."""
        return round(HEIGHT - BOTTOM - share / self.top * (HEIGHT - BOTTOM - MARGIN), 1)

    def points(self, shares: Iterable[tuple[float, float]]) -> str:
        """Return the positions of points, as SVG has them."""
        return " ".join(f"{self.x(one)},{self.y(other)}" for one, other in shares)

    def plot(self, shapes: Sequence[str]) -> str:
        """Return a plot: the axes, and shapes on them."""
        inside = "\n".join([*self._grid(), *shapes])
        return f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img">\n{inside}\n</svg>'

    def _grid(self) -> list[str]:
        marks = []
        for tick in range(TICKS + 1):
            share = tick / TICKS
            x, y = self.x(share), self.y(share * self.top)
            marks += [
                f'<path class="grid" d="M{x} {self.y(0)}V{MARGIN}M{LEFT} {y}H{WIDTH - MARGIN}"/>',
                f'<text x="{x}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{share:.0%}</text>',
                f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{100 * share * self.top:.3g}%</text>',
            ]
        middle = self.x(0.5)
        return [
            *marks,
            f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{self.horizontal}</text>',
            f'<text x="{-HEIGHT // 2 + 20}" y="12" transform="rotate(-90)" text-anchor="middle">{self.vertical}</text>',
        ]


def reliability_diagram(bins: Sequence[Bin]) -> str:
    """Return the share of right values of each bin, with its mean probability; calibrated ones are on the diagonal."""
    axes = Axes("probability", "right")
    bars = [
        f'<rect class="bar" x="{axes.x(each.low)}" y="{axes.y(each.right)}"'
        f' width="{axes.x(each.high) - axes.x(each.low) - 1:.1f}" height="{axes.y(0) - axes.y(each.right):.1f}">'
        f"<title>{each.count:,} values of mean probability {each.mean_probability:.3f}: {each.right:.1%} right</title>"
        "</rect>"
        for each in bins
    ]
    dots = [
        f'<circle class="dot" cx="{axes.x(each.mean_probability)}" cy="{axes.y(each.right)}" r="3"/>' for each in bins
    ]
    return axes.plot([*bars, f'<polyline class="ideal" points="{axes.points([(0, 0), (1, 1)])}"/>', *dots])


def risk_coverage_plot(points: Sequence[RiskPoint]) -> str:
    """Return the risk over the coverage."""
    axes = Axes("values accepted, the surest first", "wrong", _top(max(point.risk for point in points)))
    curve = axes.points((point.coverage, point.risk) for point in points)
    dots = [
        f'<circle class="target" cx="{axes.x(point.coverage)}" cy="{axes.y(point.risk)}" r="5">'
        f"<title>probability at least {point.probability:.3f}: {point.coverage:.1%} of the values, "
        f"{point.risk:.1%} of them wrong</title></circle>"
        for point in points
    ]
    return axes.plot([f'<polyline class="curve" points="{curve}"/>', *dots])


def score_bar(share: float | None) -> str:
    """Return a share as a bar."""
    width = 0 if share is None else round(100 * share)
    return f'<svg class="score" viewBox="0 0 100 8" width="100"><rect width="{width}" height="8" rx="2"/></svg>'


def _top(share: float) -> float:
    """Return where an axis for shares up to ``share`` ends, so that its ticks are round."""
    return next(top for top in TOPS if share <= top)

"""``constrain calibrate``: what the probabilities of a model mean, by records that are known to be right or wrong."""

from __future__ import annotations

from pathlib import Path

import click

from constrain.cli.evaluate import RECORDS
from constrain.cli.options import OutputFile, keep


@click.command()
@click.argument("records", type=RECORDS)
@click.option("--gold", required=True, type=RECORDS, help="The records that are right, as lines of JSON.")
@click.option("--ignore-case", is_flag=True, help="Take strings for the same that differ only in case.")
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    default="calibration.json",
    show_default=True,
    help="The calibration, for constrain extract --calibration.",
)
def calibrate(records: Path, gold: Path, ignore_case: bool, output: Path) -> None:
    """Calibrate the probabilities of values, given RECORDS, the JSON Lines of constrain extract, and gold.

    With the calibration, constrain extract writes probabilities that mean what they say (of the values with 0.9, nine
    of ten are right), and null in place of a value that is hardly more probable, if that makes more values right.
    RECORDS have to be extracted without it. It takes 30 values or more, and gets better with some hundreds.
    Gold is the same as that of constrain evaluate.
    """
    from constrain.evaluation.calibration import calibrate as calibrated
    from constrain.runs import read_lines

    keep(output, records, gold)
    found = calibrated(read_lines(records), read_lines(gold), ignore_case=ignore_case)
    found.calibration.save(output)
    held_out = "" if found.held_out_error is None else f", {found.held_out_error:.3f} after it, for other documents"
    click.echo(f"{output}: {found.count:,} values; expected calibration error {found.error:.3f} before{held_out}")
    if margin := found.calibration.null_margin:
        click.echo(f"values that are less than {margin:g} times as probable as null become null")

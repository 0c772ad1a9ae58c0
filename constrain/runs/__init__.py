"""Runs: records from many documents, in a file that an interrupted run leaves whole and a later run continues."""

from constrain.runs.extraction import open_output, run_extraction, settings_of
from constrain.runs.journal import Journal
from constrain.runs.key import model_identity, settings_key, work_key
from constrain.runs.lines import Line, encode_line, failure_line, record_line
from constrain.runs.model import LazyModel
from constrain.runs.read_lines import read_lines
from constrain.runs.run import Extract, Output, Progress, Run
from constrain.runs.sample import sample
from constrain.runs.schema import check_schema
from constrain.runs.stream import Stream
from constrain.runs.table import Table, journal_of
from constrain.runs.work import Input, Work

__all__ = [
    "Extract",
    "Input",
    "Journal",
    "LazyModel",
    "Line",
    "Output",
    "Progress",
    "Run",
    "Stream",
    "Table",
    "Work",
    "check_schema",
    "encode_line",
    "failure_line",
    "journal_of",
    "model_identity",
    "open_output",
    "read_lines",
    "record_line",
    "run_extraction",
    "sample",
    "settings_key",
    "settings_of",
    "work_key",
]

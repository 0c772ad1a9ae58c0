"""Writes documents of many schemas within tight budgets of tokens, each schema within bounds of time.

    python tests/engine/walk_budgets.py FOLDER [--every N]

FOLDER holds cases of the form of MaskBench. For every schema that compiles, and every budget from the least possible to
five tokens more, random allowed tokens must end in a valid document within the budget. What does not is listed, and the
exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import signal
import sys
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

import jsonschema_rs
import numpy as np

from constrain.engine import CompiledGrammar, allocate_bitmask, compile_json_schema
from constrain.errors import ConstrainError, GrammarError
from constrain.testing import small_vocabulary

#: Seconds of processor time for one schema.
SECONDS = 60


def check(file: Path) -> str:
    """Walk through the schema of a case; returns what came of it."""
    schema = json.loads(file.read_text(encoding="utf-8"))["schema"]
    try:
        grammar = compile_json_schema(schema, small_vocabulary())
    except GrammarError:
        return "refused"
    try:
        least = grammar.matcher().min_tokens()
        for budget in range(least, least + 6):
            text = walk(grammar, budget)
            if not grammar.accepts(text) or not is_valid(schema, text):
                return f"FAILED: {text[-200:]!r} is not valid"
    except ConstrainError as error:
        return f"FAILED: {type(error).__name__}: {error}"
    return "finished"


def walk(grammar: CompiledGrammar, budget: int) -> bytes:
    matcher, rng, text = grammar.matcher(), random.Random(budget), b""
    bits = allocate_bitmask(1, grammar.vocabulary.size)
    for left in range(budget, 0, -1):
        matcher.fill_bitmask(bits, budget=left)
        token = int(rng.choice(np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little"))))
        matcher.accept(token)
        if token in grammar.vocabulary.eos_token_ids:
            return text
        text += grammar.vocabulary.token_bytes(token)
    return text


def is_valid(schema: object, text: bytes) -> bool:
    try:
        validator = jsonschema_rs.validator_for(schema, validate_formats=True)
    except ValueError:  # it does not know the dialect, a pattern or a reference; the grammar does
        return True
    return validator.is_valid(json.loads(text))


def serve(file: Path, answer: Connection) -> None:
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # ends the process, wherever it is
    answer.send(check(file))


def run(file: Path) -> str:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=serve, args=(file, theirs))
    process.start()
    theirs.close()
    try:
        return str(ours.recv())
    except EOFError:
        process.join()
        return f"FAILED: the process ended with {process.exitcode}"
    finally:
        process.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=1, help="of the cases, take every N-th")
    options = parser.parse_args()
    small_vocabulary()  # the processes share it
    outcomes: Counter[str] = Counter()
    for file in sorted(options.folder.glob("*.json"))[:: options.every]:
        outcome = run(file)
        outcomes[outcome.split(":")[0]] += 1
        if outcome.startswith("FAILED"):
            print(f"{file.name}: {outcome}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())))
    return outcomes["FAILED"] > 0


if __name__ == "__main__":
    sys.exit(main())

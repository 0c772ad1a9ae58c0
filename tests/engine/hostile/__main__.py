"""Puts constraints to the engine that were made to blow up, each within bounds of time and memory.

    python tests/engine/hostile [--every N] [--only TEXT] [--seconds S]

A constraint must end in masks or in an error of ``constrain.errors``. Each is listed with what it ended in; the exit
status is 1 if any ran out of time or memory, crashed, or raised anything else.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import grammars
import numpy as np
import regexes
import schemas

from constrain.engine import (
    CompiledGrammar,
    Limits,
    Vocabulary,
    allocate_bitmask,
    compile_json_schema,
    compile_lark,
    compile_regex,
)
from constrain.errors import ConstrainError
from constrain.testing import small_vocabulary

#: Seconds of processor time for one constraint beyond ``max_seconds`` for compiling, and as much for its masks.
MARGIN = 10
#: Bytes of address space of the process, the vocabulary and Python itself included.
MEMORY = 3 << 29
#: Tokens that are tried after compiling.
TOKENS = 24

Compiler = Callable[..., CompiledGrammar]
Case = tuple[Compiler, Callable[[], Any]]


def cases() -> dict[str, Case]:
    """All constraints by name."""
    kinds: list[tuple[str, Compiler, Any]] = [
        ("schema", compile_json_schema, schemas),
        ("regex", compile_regex, regexes),
        ("lark", compile_lark, grammars),
    ]
    return {f"{kind} {name}": (compiler, make) for kind, compiler, module in kinds for name, make in module.sources()}


def put(case: Case, vocabulary: Vocabulary, limits: Limits) -> str:
    """Compile a constraint and follow a random text of it; returns what came of that."""
    compiler, make = case
    source = make()
    try:
        return follow(compiler(source, vocabulary, limits=limits))
    except ConstrainError as error:
        str(error)
        return type(error).__name__


def follow(grammar: CompiledGrammar) -> str:
    rng, matcher = random.Random(0), grammar.matcher()
    bits = allocate_bitmask(1, grammar.vocabulary.size)
    for count in range(TOKENS):
        matcher.fill_bitmask(bits)
        tokens = np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little"))
        if not tokens.size:
            raise AssertionError(f"a dead end after {count} tokens")
        token = int(rng.choice(tokens))
        if not matcher.accept(token):
            raise AssertionError("a token of the mask is refused")
        if token in grammar.vocabulary.eos_token_ids:
            break
    return "masks"


def serve(names: list[str], seconds: int) -> None:
    """Run some constraints within the bounds, and report before and after each."""
    vocabulary, known, limits = small_vocabulary(), cases(), Limits(max_seconds=seconds)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, wherever it is
    for name in names:
        print(json.dumps({"begin": name}), flush=True)
        signal.setitimer(signal.ITIMER_PROF, 2 * seconds + MARGIN)
        began = time.process_time()
        try:
            outcome = put(known[name], vocabulary, limits)
        except BaseException as error:  # no other exception is allowed
            outcome = f"FAILED: {type(error).__name__}: {str(error)[:200]}"
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps({"outcome": outcome, "seconds": round(time.process_time() - began, 2)}), flush=True)


def run(names: list[str], seconds: int) -> Iterable[tuple[str, str, float]]:
    """Name, outcome and seconds of each, in processes that are replaced where they are lost."""
    while names:
        command = [sys.executable, __file__, "--serve", "--seconds", str(seconds)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(names))
        process.stdin.close()
        current = ""
        for line in process.stdout:
            event = json.loads(line)
            if "begin" in event:
                current = event["begin"]
            else:
                yield current, event["outcome"], event["seconds"]
                names = names[1:]
                current = ""
        code = process.wait()
        if current:
            lost = "out of time" if code == -signal.SIGPROF else f"the process ended with {code}"
            yield current, f"FAILED: {lost}", 2 * seconds + MARGIN
            names = names[1:]
        elif names:
            sys.exit(f"the process ended with {code} before it began")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="of the constraints, take every N-th")
    parser.add_argument("--only", default="", help="of the constraints, take those with this in their name")
    parser.add_argument("--seconds", type=int, default=Limits().max_seconds, help="limit max_seconds, of compiling")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(json.load(sys.stdin), options.seconds)
        return 0
    names = [name for name in cases() if options.only in name][:: options.every]
    failed = 0
    for name, outcome, seconds in run(names, options.seconds):
        failed += outcome.startswith("FAILED")
        print(f"{name}: {outcome} ({seconds} s)", flush=True)
    print(f"{len(names)} constraints, {failed} of them failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())

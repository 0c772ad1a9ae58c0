"""Structured outputs of a running vLLM on the CPU, with the built-in model, by constrain and by vLLM's own back ends.

Prints the figures as JSON, and fails if an output of constrain is not valid.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases import Case, read_cases, verdict

FOLDER = Path(__file__).parent

#: Tokens beyond those of the shortest output, where they are few.
_TIGHT = 8
_AMPLE = 200

#: The back ends by the names of the report: what the plugin stands for, and vLLM's own, without the plugin.
BACKENDS = {"constrain": "auto", "guidance": "guidance", "xgrammar": "xgrammar"}


@dataclass(frozen=True)
class Part:
    """One run of vLLM.

    Attributes:
        backend: key of ``BACKENDS``.
        spare: tokens beyond those of the shortest output.
        drafts: number of tokens drafted by n-gram.
        lured: whether logits prefer white space and digits.
    """

    backend: str
    spare: int
    drafts: int = 0
    lured: bool = False


PARTS = {
    "plain": Part("constrain", _AMPLE),
    "drafts": Part("constrain", _AMPLE, drafts=3),
    "tight-drafts": Part("constrain", _TIGHT, drafts=3),
    **{f"tight-{name}": Part(name, _TIGHT, lured=True) for name in BACKENDS},
}
MASKS = "masks"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}, {MASKS}; all if omitted")
    parser.add_argument("--schemas", type=int, default=300, help="number of schemas")
    given = parser.parse_args()
    names = given.parts or [*PARTS, MASKS]
    if unknown := set(names) - {*PARTS, MASKS}:
        parser.error(f"there is no part {', '.join(unknown)}")
    cases = read_cases(given.schemas)
    report = {name: verdicts(cases, generated(cases, PARTS[name])) for name in names if name in PARTS}
    if MASKS in names:
        texts = written(cases, generated(cases, PARTS["plain"]))
        report[MASKS] = in_vllm("masks.py", {"requests": texts}, "constrain")
    print(json.dumps(report, indent=2))
    sys.exit(failures(report, cases))


def generated(cases: list[Case], part: Part) -> list[dict[str, Any]]:
    """Return what one run of vLLM makes of the cases."""
    requests = [{"schema": case.schema, "max_tokens": case.needed + part.spare} for case in cases]
    run = {"backend": BACKENDS[part.backend], "drafts": part.drafts, "lured": part.lured, "requests": requests}
    found: list[dict[str, Any]] = in_vllm("engine.py", run, part.backend)
    return found


def in_vllm(script: str, run: dict[str, Any], name: str) -> Any:
    """Run a script in a process with vLLM, and return what it writes."""
    plugins = "constrain" if name == "constrain" else ""
    settings = {"VLLM_PLUGINS": plugins, "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_CPU_KVCACHE_SPACE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "output.json")
        given = json.dumps({**run, "output": str(output)})
        command = [sys.executable, str(FOLDER / script)]
        subprocess.run(command, input=given, text=True, check=True, env=os.environ | settings, stdout=sys.stderr)
        return json.loads(output.read_text())


def written(cases: list[Case], found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the schemas and texts of the outputs."""
    pairs = zip(cases, found, strict=True)
    return [{"schema": case.schema, "text": each["text"]} for case, each in pairs if "text" in each]


def verdicts(cases: list[Case], found: list[dict[str, Any]]) -> dict[str, int]:
    """Count what became of the requests."""
    counts = Counter[str]()
    for case, each in zip(cases, found, strict=True):
        counts[verdict(case, each["text"]) if "text" in each else "refused" if each else "lost"] += 1
    return dict(counts)


def failures(report: dict[str, Any], cases: list[Case]) -> str | None:
    """Return what is not as it has to be, if anything."""
    refused = sum(case.is_refused for case in cases)
    wanted = {"valid": len(cases) - refused} | ({"refused": refused} if refused else {})
    ours = [name for name in report if name in PARTS and PARTS[name].backend == "constrain"]
    wrong = [f"{name}: {report[name]}, not {wanted}" for name in ours if report[name] != wanted]
    return "\n".join(wrong) or None


if __name__ == "__main__":
    main()

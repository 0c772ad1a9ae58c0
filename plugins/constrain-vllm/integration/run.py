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
from pathlib import Path
from typing import Any

from cases import Case, read_cases, verdict

FOLDER = Path(__file__).parent

#: Tokens beyond those of the shortest output, where they are few.
_TIGHT = 8
_AMPLE = 200

#: The back ends by the names of the report: what the plugin stands for, and vLLM's own, without the plugin.
BACKENDS = {"constrain": "auto", "guidance": "guidance", "xgrammar": "xgrammar"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schemas", type=int, default=300, help="number of schemas")
    cases = read_cases(parser.parse_args().schemas)
    ample = [case.needed + _AMPLE for case in cases]
    tight = [case.needed + _TIGHT for case in cases]
    plain = generated(cases, ample)
    report = {"plain": verdicts(cases, plain)}
    for name, limits in {"drafts": ample, "drafts, tight": tight}.items():
        report[name] = verdicts(cases, generated(cases, limits, drafts=3))
    for name in BACKENDS:
        report[f"{name}, tight"] = verdicts(cases, generated(cases, tight, name, lured=True))
    report["masks"] = in_vllm("masks.py", {"requests": written(cases, plain)}, "constrain")
    print(json.dumps(report, indent=2))
    sys.exit(failures(report))


def generated(
    cases: list[Case], max_tokens: list[int], name: str = "constrain", drafts: int = 0, lured: bool = False
) -> list[dict[str, Any]]:
    """Return what one run of vLLM makes of the cases."""
    pairs = zip(cases, max_tokens, strict=True)
    requests = [{"schema": case.schema, "max_tokens": limit} for case, limit in pairs]
    run = {"backend": BACKENDS[name], "drafts": drafts, "lured": lured, "requests": requests}
    found: list[dict[str, Any]] = in_vllm("engine.py", run, name)
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


def failures(report: dict[str, Any]) -> str | None:
    """Return what is not as it has to be, if anything."""
    ours = ["plain", "drafts", "drafts, tight", "constrain, tight"]
    wrong = [f"{name}: {report[name]}" for name in ours if set(report[name]) - {"valid", "refused"}]
    return "\n".join(wrong) or None


if __name__ == "__main__":
    main()

"""Findings and the figures of every target as JSON, for bots."""

import json

from aotlens.diagnostics.checked import Checked, CheckedTarget, Finding
from aotlens.model.codec import encode_record
from aotlens.view.quantities import applied_steps, signature

__all__ = ["SCHEMA", "render"]

SCHEMA = "aotlens.check/1"


def render(checked: Checked) -> str:
    data = {
        "schema": SCHEMA,
        "exit_code": checked.exit_code,
        "files": list(checked.files),
        "targets": [_target(item) for item in checked.targets],
        "findings": [_finding(item) for item in checked.findings],
        "hidden": [_finding(item) for item in checked.hidden],
    }
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _target(checked: CheckedTarget) -> dict[str, object]:
    target = checked.target
    return {
        "file": checked.file,
        "qualname": target.qualname,
        "signature": signature(target),
        "mode": target.mode,
        "saved_bytes": target.partition.saved_bytes if target.partition is not None else 0,
        "peak_bytes": target.memory.peak_bytes if target.memory is not None else None,
        "wrapper_steps": [step.name for step in applied_steps(target)],
        "budget": encode_record(checked.budget),
    }


def _finding(finding: Finding) -> dict[str, object]:
    return {"file": finding.file, "qualname": finding.qualname, **encode_record(finding.diagnostic)}

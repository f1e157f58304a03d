"""torch's runtime wrapper as text, and what its parts do at each call."""

import re

from aotlens.model.report import Wrapper, WrapperStep
from aotlens.trace.facts import CompilationFacts

__all__ = ["wrapper_of"]

PARTS = (
    ("runtime_wrapper_orchestration", "runs around the compiled graph on each call"),
    ("output_alias_wrapper", "makes outputs views of the caller's tensors again"),
    ("compiled_fn_wrapper", "marks outputs that carry no gradient, and hides views whose base stays inside"),
    ("compiled_function_forward", "runs the compiled forward, and saves values for the backward"),
    ("compiled_function_backward", "runs the compiled backward"),
    ("backward_prologue", "prepares tangents for the compiled backward"),
    ("backward_epilogue", "hands gradients out in the order of the inputs"),
)
_COPY = re.compile(r"\.copy_\(|_apply_mutations|_copy_back")


def wrapper_of(facts: CompilationFacts, index: int) -> Wrapper | None:
    """Return the logged parts, one behind the other; None in logs of torch that writes none."""
    lines: list[str] = []
    steps: list[WrapperStep] = []
    for kind, reason in PARTS:
        text = facts.text(kind, index).rstrip("\n")
        if not text:
            continue
        lines.append(f"# {kind}")
        start = len(lines) + 1
        lines += [*text.split("\n"), ""]
        steps.append(WrapperStep(kind, True, reason, (start, len(lines) - 1)))
        if kind == "runtime_wrapper_orchestration" and _COPY.search(text):
            steps.append(WrapperStep("copy back", True, "writes new values into the caller's tensors", None))
    return Wrapper("\n".join(lines), tuple(steps)) if steps else None

"""The phases of a trace, in the words of every front end. Standard library only.

Invariant: every progress message of the worker belongs to exactly one phase, and a stage that no table knows
belongs to the phase `tracing`.
"""

import os
from dataclasses import dataclass
from typing import Literal

__all__ = ["PHASES", "STARTING", "Phase", "PhaseKind", "phase_of"]

PhaseKind = Literal["start", "queue", "import", "run", "tracing", "kernels", "report"]


@dataclass(frozen=True, slots=True)
class Phase:
    """The current phase of a trace."""

    kind: PhaseKind
    words: str
    """A participle and its object, such as `tracing Block.forward`."""
    stage: str = ""
    """The pipeline's stage within the phase; empty where it has none."""
    kernel: str = ""
    """The kernel that was generated last."""

    def __str__(self) -> str:
        return f"{self.words}: {self.stage}" if self.stage else self.words


PHASES: tuple[Phase, ...] = (
    Phase("start", "importing torch"),
    Phase("import", "reading your script"),
    Phase("run", "running your script"),
    Phase("tracing", "tracing your functions"),
    Phase("report", "building the report"),
)
"""The usual phases of a trace in order; GPU kernels come between the last two."""

STARTING = PHASES[0]
"""Before the first message: the worker starts and imports torch."""

_FIXED: dict[str, Phase] = {
    "queued": Phase("queue", "waiting for another trace"),
    "run": PHASES[2],
    "report": PHASES[4],
}

_KERNEL_STAGES = ("kernels for ", "code for ", "machine code for ", "choices of ")
"""Prefixes of the stages that generate GPU code."""


def phase_of(stage: str, detail: str) -> Phase:
    """Return the phase of a progress message.

    `stage` and `detail` are those of `aotlens.worker.protocol.Progress`; the detail is the script's path for
    `import`, and for a stage of the pipeline the name of the traced function, empty before the first one.
    """
    if stage == "import":
        return Phase("import", f"reading {os.path.basename(detail)}" if detail else PHASES[1].words)
    if stage in _FIXED:
        return _FIXED[stage]
    if stage.startswith(_KERNEL_STAGES):
        return _kernel_phase(stage)
    return Phase("tracing", f"tracing {detail}" if detail else PHASES[3].words, stage)


def _kernel_phase(stage: str) -> Phase:
    """`kernels for sm_90: 12 of 45: triton_0` is generating kernels for sm_90 (12 of 45)."""
    subject, separator, rest = stage.partition(": ")
    count, _, kernel = rest.partition(": ")
    return Phase("kernels", f"generating {subject}" + (f" ({count})" if separator else ""), kernel=kernel)

"""The phases of a trace, in the words that every front end shows.  Stdlib only.

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
    """What a trace is doing now."""

    kind: PhaseKind
    words: str
    """A participle and its object, as `tracing Block.forward`."""
    stage: str = ""
    """The pipeline's stage within the phase; empty where it has none."""

    def __str__(self) -> str:
        return f"{self.words}: {self.stage}" if self.stage else self.words


PHASES: tuple[Phase, ...] = (
    Phase("start", "importing torch"),
    Phase("import", "reading your script"),
    Phase("run", "running your script"),
    Phase("tracing", "tracing your functions"),
    Phase("report", "building the report"),
)
"""What a trace usually goes through, in this order; the kernels of a GPU come between the last two."""

STARTING = PHASES[0]
"""Before the first message: the worker starts and imports torch."""

_FIXED: dict[str, Phase] = {
    "queued": Phase("queue", "waiting for another trace"),
    "run": PHASES[2],
    "report": PHASES[4],
}

_KERNEL_STAGES = ("kernels for ", "code for ", "machine code for ", "choices of ")
"""How the stages of code generation for a GPU start."""


def phase_of(stage: str, detail: str) -> Phase:
    """The phase that a progress message belongs to.

    `stage` and `detail` are those of `aotlens.worker.protocol.Progress`; the detail is the script's path for
    `import`, and the name of the traced function for a stage of the pipeline.
    """
    if stage == "import":
        return Phase("import", f"reading {os.path.basename(detail)}" if detail else PHASES[1].words)
    if stage in _FIXED:
        return _FIXED[stage]
    if stage.startswith(_KERNEL_STAGES):
        return _kernel_phase(stage)
    return Phase("tracing", f"tracing {detail}" if detail else PHASES[3].words, stage)


def _kernel_phase(stage: str) -> Phase:
    """`kernels for sm_90: 12 of 45` is generating kernels for sm_90 (12 of 45)."""
    subject, separator, count = stage.partition(": ")
    return Phase("kernels", f"generating {subject}" + (f" ({count})" if separator else ""))

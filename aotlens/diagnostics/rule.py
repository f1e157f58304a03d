"""One rule of a diagnostic code, and the families of codes."""

from dataclasses import dataclass

from aotlens.model.report import Severity

FAMILIES = {
    "1": "Mutation",
    "2": "Aliasing",
    "3": "Saved activations and memory",
    "4": "Tracing",
    "5": "Wrapper cost and CUDA graphs",
    "6": "GPU kernels",
    "7": "Correctness",
    "8": "Budgets and ignore comments",
    "9": "Failures",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """The meaning of one code, in the user's words."""

    code: str
    title: str
    severity: Severity
    """The highest severity with which it is reported."""
    meaning: str
    cost: str
    advice: str
    example: str
    """Code that is reported."""
    better: str = ""
    """The example without the finding; empty where there is no single answer."""

    @property
    def family(self) -> str:
        """Return the heading of its family."""
        return FAMILIES[self.code[2]]

"""The answer of each tool.  Stdlib only; the published output schemas are made of these records.

Invariant: what a report's JSON has a record for is that record here, with the same keys.
"""

from dataclasses import dataclass

from aotlens.compare.difference import TargetChange
from aotlens.model.dynamo import CompileSeconds, DynamoFunction
from aotlens.model.fit import FitLine, FitMoment, GpuFit, KindBytes, PhasePeak
from aotlens.model.recompilations import Forecast
from aotlens.model.report import Diagnostic, Frontend, Mode, NotCompiled, Span, Target, Verdict, WhatIf
from aotlens.model.source import Outcome

__all__ = [
    "ApplyFixAnswer",
    "DiffAnswer",
    "FitAnswer",
    "InspectAnswer",
    "NumberedFix",
    "TargetOverview",
    "TargetVerdict",
    "TargetWhatIf",
    "VerifyAnswer",
    "WhatIfAnswer",
    "WhyAnswer",
]


@dataclass(frozen=True, slots=True)
class NumberedFix:
    """An edit that `apply-fix` can show and write."""

    fix: int
    code: str
    """The diagnostic that it removes."""
    title: str
    span: Span | None
    is_tested: bool
    """Whether the edited script was run and its results compared with eager; otherwise it was not run."""


@dataclass(frozen=True, slots=True)
class TargetOverview:
    """A target in numbers."""

    name: str
    qualname: str
    frontend: Frontend
    mode: Mode
    span: Span | None
    inputs: int
    mutated_inputs: tuple[str, ...]
    outputs: int
    saved_bytes: int | None
    """None in inference."""
    peak_bytes: int | None
    """Predicted, forward and backward together."""
    kernels: int
    """Generated kernels and library calls; 0 without `backend: inductor` or a GPU."""
    wrapper_steps: tuple[str, ...]
    """What the wrapper does on each call."""
    verified: Verdict | None
    """None where nobody compared it with eager."""


@dataclass(frozen=True, slots=True)
class InspectAnswer:
    """What compiling a script's targets does."""

    report: str
    """Names this report in later calls of `inspect`, `diff` and `apply-fix`."""
    summary: str
    """What `aotlens inspect` prints."""
    targets: tuple[TargetOverview, ...]
    diagnostics: tuple[Diagnostic, ...]
    not_compiled: tuple[NotCompiled, ...]
    """What was passed to `torch.compile` and ran in eager."""
    fixes: tuple[NumberedFix, ...]
    details: tuple[Target, ...]
    """The parts and the stage that were asked for; the other fields of these targets are left empty."""
    left_out: tuple[str, ...]
    """Lists of which only the first rows are here; a larger `rows` shows more. Also a module text."""
    incomplete: str | None
    """Why there may be targets that the report does not show."""
    output: str
    """The end of what the script printed."""


@dataclass(frozen=True, slots=True)
class WhyAnswer:
    """What Dynamo did while a script ran, with any backend."""

    report: str
    """Names this report in later calls of `why` and `apply-fix`."""
    summary: str
    """What `aotlens why` prints: problems in the order in which to solve them."""
    functions: tuple[DynamoFunction, ...]
    compile_seconds: CompileSeconds | None
    """None where Dynamo compiled nothing."""
    diagnostics: tuple[Diagnostic, ...]
    fixes: tuple[NumberedFix, ...]
    forecasts: tuple[Forecast, ...]
    """What calls with other arguments would do; empty unless `forecast` or `vary` asked."""
    left_out: tuple[str, ...]
    """Lists of which only the first rows are here; a larger `rows` shows more."""
    incomplete: str | None
    """Why the script did not run to its end."""
    output: str
    """The end of what the script and the command printed."""


@dataclass(frozen=True, slots=True)
class FitAnswer:
    """The memory of one step of a script."""

    report: str
    """Names this report in later calls of `fit`."""
    summary: str
    """What `aotlens fit` prints."""
    step_peak_bytes: int
    at: FitMoment
    by_kind: tuple[KindBytes, ...]
    """What is alive at the peak, the largest first."""
    by_line: tuple[FitLine, ...]
    phases: tuple[PhasePeak, ...]
    fits: GpuFit | None
    """None unless `gpu` asked."""
    assumptions: tuple[str, ...]
    """What the prediction takes for granted, or leaves out."""
    left_out: tuple[str, ...]
    """Lists of which only the first rows are here; a larger `rows` shows more."""
    incomplete: str | None
    """Why the script did not run as far as it was asked to."""
    output: str
    """The end of what the script and the command printed."""


@dataclass(frozen=True, slots=True)
class TargetVerdict:
    """How one target compared with eager."""

    name: str
    outcome: Outcome
    text: str
    """What was compared, the first difference, or why it is not verified; then details, a line each."""


@dataclass(frozen=True, slots=True)
class VerifyAnswer:
    """How each target compared with eager, the worst first."""

    report: str
    all_equal: bool
    """Only if every target was compared and equals eager."""
    verdicts: tuple[TargetVerdict, ...]
    incomplete: str | None
    """Why there may be targets that were not compared."""
    output: str
    """The end of what the script printed."""


@dataclass(frozen=True, slots=True)
class TargetWhatIf:
    """One target under each of the changes."""

    name: str
    changes: tuple[WhatIf, ...]


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """What other choices of saved values would cost."""

    report: str
    targets: tuple[TargetWhatIf, ...]
    incomplete: str | None
    output: str
    """The end of what the script printed."""


@dataclass(frozen=True, slots=True)
class DiffAnswer:
    """What the newer of two reports changed."""

    is_empty: bool
    summary: str
    """What `aotlens diff` prints."""
    targets: tuple[TargetChange, ...]
    """Those that both reports have."""
    added: tuple[str, ...]
    """Targets that only the newer report has."""
    removed: tuple[str, ...]
    left_out: tuple[str, ...]
    """Lists of which only the first rows are here; a larger `rows` shows more."""


@dataclass(frozen=True, slots=True)
class ApplyFixAnswer:
    """The edit as a diff, and whether it was written."""

    title: str
    diff: str
    files: tuple[str, ...]
    written: bool
    token: str
    """Allows `write` as long as the files are as they were when this diff was made."""

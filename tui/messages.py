"""The app's messages: records of answers, and the user's requests. Each message is complete in itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.message import Message

from aotlens.model.failure import Failure

if TYPE_CHECKING:  # the first screen of the app loads without the report's records
    from aotlens.model.log import ListedTarget
    from aotlens.model.report import Report, Target, WhatIf
    from aotlens.view.tabs.tables.rows import Jump


class TraceProgress(Message):
    """The trace reached a stage."""

    def __init__(self, trace: int, stage: str, detail: str = "") -> None:
        super().__init__()
        self.trace = trace
        self.stage = stage
        self.detail = detail


class TraceEnded(Message):
    """A trace answered; the answer of a trace that is not the newest is ignored."""

    def __init__(
        self,
        trace: int,
        report: Report | None,
        failure: Failure | None,
        output: str = "",
        elapsed_ms: float | None = 0.0,
    ) -> None:
        super().__init__()
        self.trace = trace
        self.report = report
        self.failure = failure
        self.output = output
        self.elapsed_ms = elapsed_ms
        """None where nothing changed since an earlier trace, whose answer this is."""


class ReportReady(Message):
    """A report to show, from any source."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = report


class LogAnswered(Message):
    """A target of a log with the answer to a what-if."""

    def __init__(self, asked: Target, target: Target) -> None:
        super().__init__()
        self.asked = asked
        """The target as it was shown when the user asked."""
        self.target = target


class ListedTargetChosen(Message):
    """The user wants to see a target of a log that is only listed."""

    def __init__(self, listed: ListedTarget) -> None:
        super().__init__()
        self.listed = listed


class LogTargetRead(Message):
    """A target of a log that was only listed, as it was read; several for a split graph."""

    def __init__(self, listed: ListedTarget, targets: tuple[Target, ...]) -> None:
        super().__init__()
        self.listed = listed
        self.targets = targets


class SourceChanged(Message):
    """A watched file was saved."""

    def __init__(self, files: tuple[str, ...]) -> None:
        super().__init__()
        self.files = files


class TargetChosen(Message):
    """The user chose another target, or a row of one of its tabs."""

    def __init__(self, index: int, jump: Jump | None = None) -> None:
        super().__init__()
        self.index = index
        self.jump = jump


class TraceWanted(Message):
    """The user wants the trace to run again, perhaps compared with eager."""

    def __init__(self, *, verify: bool = False) -> None:
        super().__init__()
        self.verify = verify


class WhatIfWanted(Message):
    """The user asks for the effect of a change of the policy: `recompute:addmm_3`."""

    def __init__(self, change: str) -> None:
        super().__init__()
        self.change = change


class GpuWanted(Message):
    """The user wants to choose the GPU whose kernels are shown."""


class SelectionChanged(Message):
    """The user selected other values: the totals of this change are wanted; empty for no selection."""

    def __init__(self, change: str) -> None:
        super().__init__()
        self.change = change


class SelectionWriteWanted(Message):
    """The user wants to write the selection to a file."""

    def __init__(self, nodes: frozenset[str], answer: WhatIf) -> None:
        super().__init__()
        self.nodes = nodes
        self.answer = answer


class TargetsAnswered(Message):
    """The answer to a question about the selection, which replaces no report."""

    def __init__(self, number: int, targets: tuple[Target, ...], failure: Failure | None) -> None:
        super().__init__()
        self.number = number
        self.targets = targets
        self.failure = failure


class SelectionWeighed(TargetsAnswered):
    """The totals of a selection: each target has nothing but its answers."""


class EditsTried(TargetsAnswered):
    """An edited copy of the script was traced, or failed."""


class CancelWanted(Message):
    """The user cancels the running trace."""

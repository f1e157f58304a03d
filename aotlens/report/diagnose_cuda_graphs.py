"""Findings about CUDA graphs, from the report's verdict.

Invariant: one finding for one expression, whichever of its operators and phases it concerns; what is only
recorded again, or runs beside a recording, has none.
"""

from collections.abc import Iterator

from aotlens.report.cuda_graph_records import BlockerKind, CudaGraphBlocker
from aotlens.report.cuda_graph_rules import OF_INPUTS
from aotlens.report.findings import Check, Limits, finding_at
from aotlens.report.records import Diagnostic, Span, Target

CODES: dict[BlockerKind, str] = {
    **dict.fromkeys(
        (
            "host_read",
            "host_check",
            "waiting_kernel",
            "data_size",
            "mask_write",
            "branch",
            "loop",
        ),
        "AL502",
    ),
    **dict.fromkeys(("written_argument", "resized_storage"), "AL503"),
    **dict.fromkeys(("cpu_input", "cpu_operator", "device_copy", "second_device"), "AL504"),
    **dict.fromkeys(("refused_operator", "sparse", "effect", "generator", "object_input"), "AL505"),
}
"""By kind of blocker; a kind without a code is no finding."""


def cuda_graph_blockers(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL502 to AL505: what keeps a CUDA graph from recording the target, or from recording it whole."""
    blockers = target.cuda_graph.blockers if target.cuda_graph is not None else ()
    found: dict[tuple[str, Span | str], list[CudaGraphBlocker]] = {}
    for blocker in blockers:
        if blocker.kind in CODES:
            place = blocker.sites[0].span if blocker.sites else blocker.what
            found.setdefault((CODES[blocker.kind], place), []).append(blocker)
    for (code, _), same in found.items():
        yield finding_at(same[0].sites, target, code, "information", _message(same))


def _message(blockers: list[CudaGraphBlocker]) -> str:
    """Of one expression; the first of its blockers says why."""
    first = blockers[0]
    what = first.sites[0].text if first.sites and first.kind not in OF_INPUTS else first.what
    prevents = any(blocker.effect == "prevents" for blocker in blockers)
    phases = " and ".join(dict.fromkeys(blocker.phase for blocker in blockers))
    follows = "keeps CUDA graphs from recording" if prevents else "splits the CUDA graph of"
    return f"`{what}` {follows} the {phases}: {first.reason}; {first.advice}"


CUDA_GRAPH_CHECKS: tuple[Check, ...] = (cuda_graph_blockers,)

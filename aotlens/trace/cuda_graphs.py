"""Why torch did not record CUDA graphs, from its log."""

from aotlens.model.cuda_graphs import BlockerKind, CudaGraph, CudaGraphBlocker
from aotlens.model.source import Phase
from aotlens.trace.facts import CompilationFacts

__all__ = ["cuda_graph_of"]

KINDS: tuple[tuple[str, BlockerKind], ...] = (
    ("mutated inputs", "written_argument"),
    ("multiple devices", "second_device"),
    ("cpu device", "cpu_input"),
    ("dynamic shape", "symbolic_size"),
    ("complex memory overlap", "written_argument"),
    ("unbacked", "data_size"),
)
"""Words of torch's reasons by cause; any other reason is an unsupported operator."""
MAX_REASON = 2_000


def cuda_graph_of(facts: CompilationFacts, is_training: bool) -> CudaGraph | None:
    """Return torch's reason for skipping CUDA graphs; None if it logged none, which leaves it unknown."""
    blockers = []
    for kind, phase in _phases(is_training):
        records = facts.every(kind)
        reason = facts.value(records[-1]).get("cudagraph_skip_reason") if records else None
        if isinstance(reason, str) and reason:
            text = reason[:MAX_REASON]
            blocker: BlockerKind = next(
                (name for words, name in KINDS if words in text), "unsupported_operator"
            )
            blockers.append(CudaGraphBlocker(blocker, "prevents", phase, "this graph", text, ""))
    if not blockers:
        return None
    return CudaGraph("not_recorded", {blocker.phase: "not_recorded" for blocker in blockers}, tuple(blockers))


def _phases(is_training: bool) -> tuple[tuple[str, Phase], ...]:
    if not is_training:
        return (("compilation_metrics", "inference"),)
    return (("compilation_metrics", "forward"), ("bwd_compilation_metrics", "backward"))

"""State how each kind of fact about a target from a log is known.

Invariant: what the log cannot say is listed as unknown, so that an empty section never reads as "there is
none".
"""

from collections.abc import Iterator

from aotlens.model.report import Target
from aotlens.model.target_facts import Known, Origin
from aotlens.trace.facts import CompilationFacts
from aotlens.trace.graphs.text import DEVICE_MODE
from aotlens.view.quantities import counted

__all__ = ["origins_of"]


DEFAULT_DEVICE = (
    "the program sets a default device, and torch logs that mode's own line for each call: pass `device=`, or"
    " move with `.to()`"
)


def origins_of(target: Target, facts: CompilationFacts, has_metadata: bool) -> tuple[Origin, ...]:
    """Return a row for each kind of fact."""
    return tuple(
        Origin(fact, known, source)
        for fact, known, source in (
            *_ledgers(target, has_metadata),
            *_graphs(target, facts),
            *_code(target, facts),
        )
    )


Row = tuple[str, Known, str]


def _ledgers(target: Target, has_metadata: bool) -> Iterator[Row]:
    yield "inputs", "logged", "dynamo_output_graph, describe_tensor, describe_source"
    if has_metadata:
        yield "mutations and aliases", "logged", "aot_forward_graph_fw_metadata"
        yield "where an input is written", "derived", "in-place calls in Dynamo's graph"
    else:
        yield "mutations and aliases", "unknown", "the log has no fw_metadata for it"
    yield "names of outputs", "derived", "variables of Dynamo's graph; the result's structure is not logged"


def _graphs(target: Target, facts: CompilationFacts) -> Iterator[Row]:
    yield "programs", "logged", ", ".join(stage.name for stage in target.stages) or "none"
    if facts.records("aotautograd_cache_hit"):
        why = "the graphs come from a cache, with the lines of the file that filled it"
        yield "lines of AOT graphs", "unknown", why
    elif _has_default_device(facts):
        yield "lines", "unknown", DEFAULT_DEVICE
    else:
        yield "lines", "logged", "the comments of the graphs; columns are not logged"
    if target.partition is not None:
        yield "saved values", "logged", "the results and arguments of the forward and backward graphs"
        yield "bytes, owners and readers of saved values", "derived", "types and edges of the graphs"
        if target.partition.own is not None:
            yield "why a value is saved", "derived", "our solver on the logged joint graph, where it agrees"
        else:
            why = target.partition.own_note or "torch logs no reasons, and our solver was not asked"
            yield "why a value is saved", "unknown", why
        yield "recomputed values", "derived", "nodes of the backward that are in the joint graph's forward"
    elif target.stage("joint") or target.stage("forward"):
        yield "saved values", "unknown", "the log has no forward and backward graph"


def _has_default_device(facts: CompilationFacts) -> bool:
    return DEVICE_MODE in facts.text("dynamo_output_graph").replace("\\", "/")


def _code(target: Target, facts: CompilationFacts) -> Iterator[Row]:
    if target.kernels:
        yield "kernels", "logged", "inductor_output_code"
        has_stacks = bool(facts.records("inductor_provenance_tracking_kernel_stack_traces"))
        without = sum(not kernel.spans for kernel in target.kernels)
        source = "provenance" if has_stacks else "names of nodes and operators in the generated code"
        yield "lines of kernels", "logged" if has_stacks else "derived", source
        if without:
            advice = "set INDUCTOR_PROVENANCE=1 to have them logged"
            why = DEFAULT_DEVICE if _has_default_device(facts) else advice
            yield f"lines of {counted(without, 'kernel')}", "unknown", why
    if target.memory is not None:
        source = (
            "allocations of the generated code" if target.kernels else "sizes and last readers in the graphs"
        )
        yield "memory", "derived", f"{source}; without what libraries need while they run"
    else:
        yield "memory", "unknown", "a size has no value in the log"
    if target.wrapper is None:
        yield "wrapper", "unknown", "this torch does not log it"
    else:
        yield "wrapper", "logged", "torch's runtime wrapper"
    yield "times of kernels, compared with eager", "unknown", "a log holds no values and no run times"

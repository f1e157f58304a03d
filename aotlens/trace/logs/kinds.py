"""The kinds of records in a log: which the report uses, and which torch writes besides.

Invariant: a kind in neither table is reported as unknown: it is of a library, or of a newer torch.
"""

from collections.abc import Mapping

from aotlens.model.log import RecordKind

__all__ = ["unused_kinds"]

USED_KINDS = frozenset(
    {
        "str",
        "torch_version",
        "dynamo_start",
        "describe_tensor",
        "describe_source",
        "dynamo_output_graph",
        "aot_joint_graph",
        "aot_forward_graph",
        "aot_backward_graph",
        "aot_inference_graph",
        "aot_forward_graph_fw_metadata",
        "aot_joint_graph_fw_metadata",
        "aot_inference_graph_fw_metadata",
        "inductor_output_code",
        "inductor_post_grad_graph",
        "after_post_grad_graph",
        "dynamo_cpp_guards_str",
        "create_symbol",
        "symbolic_shape_specialization",
        "dynamo_graph_break_reason",
        "recompile_reasons",
        "compilation_metrics",
        "bwd_compilation_metrics",
        "chromium_event",
        "runtime_wrapper_orchestration",
        "output_alias_wrapper",
        "compiled_function_forward",
        "compiled_function_backward",
        "backward_prologue",
        "backward_epilogue",
        "compiled_fn_wrapper",
        "aot_autograd_runtime_wrappers",
        "fx_graph_cache_hit",
        "fx_graph_cache_miss",
        "fx_graph_cache_bypass",
        "aotautograd_cache_hit",
        "aotautograd_cache_miss",
        "aotautograd_cache_bypass",
        "inductor_provenance_tracking_kernel_stack_traces",
    }
)
"""Kinds that the report uses."""

OTHER_KINDS = frozenset(
    {
        "after_joint_graph",
        "after_pre_grad_graph",
        "aot_forward_graph_fw_subclass_metadata",
        "aot_saved_tensors_hooks_graphs",
        "aotautograd_cache_hash",
        "before_joint_graph",
        "before_post_grad_graph",
        "before_pre_grad_graph",
        "compilation_metrics_runtime",
        "compiled_autograd_compile_reasons",
        "compiled_autograd_graph",
        "compiled_autograd_graph_pre_reordering",
        "compiler_collective",
        "create_unbacked_symbol",
        "describe_storage",
        "dump_file",
        "dynamo_error",
        "dynamo_guards",
        "dynamo_side_effects",
        "export",
        "exported_program",
        "expression_created",
        "fx_graph_cache_hash",
        "fx_graph_runnable",
        "graph_dump",
        "graph_execution",
        "guard_added",
        "guard_added_fast",
        "guard_on_data_dependent_error",
        "link",
        "mismatched_fake_kernel",
        "missing_fake_kernel",
        "optimize_ddp_split_child",
        "optimize_ddp_split_graph",
        "propagate_real_tensors",
        "propagate_real_tensors_provenance",
        "torch._functorch.config",
        "triton_kernel_info",
    }
)
"""Kinds of torch 2.6 to 2.15 that the report does not use."""

OTHER_STARTS = ("dynamo_cache_", "fx_bucketing_", "inductor_", "min_cut_", "overlap_scheduling_")
OTHER_ENDS = ("_ORIGINAL_BYTECODE", "_MODIFIED_BYTECODE", "_code_state", "_pre_grad", "_post_grad")
"""Beginnings and ends of further kinds of torch, whose names have a function's or a pass's name in them."""


def unused_kinds(counts: Mapping[str, int]) -> tuple[RecordKind, ...]:
    """Return the kinds that the report does not use, those unknown to this version first, then by name."""
    rows = (
        RecordKind(kind, count, is_known=_is_torchs(kind))
        for kind, count in counts.items()
        if kind not in USED_KINDS
    )
    return tuple(sorted(rows, key=lambda row: (row.is_known, row.name)))


def _is_torchs(kind: str) -> bool:
    return kind in OTHER_KINDS or kind.startswith(OTHER_STARTS) or kind.endswith(OTHER_ENDS)

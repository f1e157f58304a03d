"""Reasons why a CUDA graph cannot record something, in a closed list, and the operators of each kind.

Graphs are split, and recordings prevented, as in torch's `mode="reduce-overhead"`, whose compiler records a
graph in parts around unrecordable operators.
"""

from dataclasses import dataclass

from aotlens.model.cuda_graphs import BlockerEffect, BlockerKind, CudaGraphBlocker, CudaGraphVerdict


@dataclass(frozen=True, slots=True)
class Why:
    """One kind of blocker."""

    effect: BlockerEffect
    reason: str
    advice: str
    code: str = ""
    """The diagnostic that reports it; empty for a kind that is no finding."""


WHY: dict[BlockerKind, Why] = {
    "written_argument": Why(
        "prevents",
        "the graph writes to it, and each call may pass another tensor, whose address a recording does not"
        " know",
        "make it a buffer of the module, or call torch._dynamo.mark_static_address(tensor) if the caller"
        " always passes the same tensor, or return the new value",
        "AL503",
    ),
    "resized_storage": Why(
        "prevents",
        "its storage is swapped or resized, and a recording uses the addresses of one run",
        "use copy_() into memory of the final size",
        "AL503",
    ),
    "object_input": Why(
        "prevents", "it is not a tensor: its methods run in Python", "keep it out of graphs", "AL505"
    ),
    "second_device": Why(
        "prevents", "a recording is for one GPU", "compile the part of each GPU separately", "AL504"
    ),
    "cpu_input": Why(
        "splits", "it is on the CPU, and a replay reads only GPU memory", "move it to the GPU once", "AL504"
    ),
    "cpu_operator": Why("splits", "it runs on the CPU", "create it on the GPU: device=...", "AL504"),
    "device_copy": Why(
        "splits",
        "it copies between CPU and GPU, and such a copy synchronises",
        "keep the value on the device that uses it",
        "AL504",
    ),
    "host_read": Why(
        "splits",
        "the CPU waits for the number, and a replay does not return to Python",
        "keep it a tensor: torch.where instead of `if`, a 0-d tensor instead of the number",
        "AL502",
    ),
    "host_check": Why(
        "splits",
        "the CPU checks a data-dependent number",
        "remove the check, or check the input instead",
        "AL502",
    ),
    "waiting_kernel": Why(
        "splits",
        "its kernels wait for the CPU, to report errors or to choose the next step",
        "use the variant that returns `info` (torch.linalg.…_ex) if there is one",
        "AL502",
    ),
    "data_size": Why(
        "splits",
        "the size of its output depends on data, and the CPU waits for it to allocate memory",
        "use an operator of fixed size: torch.where, multiplication by a mask, torch.nonzero_static",
        "AL502",
    ),
    "mask_write": Why(
        "splits",
        "a mask selects the indices of several values, and the CPU waits for their number",
        "use torch.where, or masked_scatter",
        "AL502",
    ),
    "branch": Why(
        "prevents",
        "the CPU waits for the condition to choose a branch",
        "compute both sides and use torch.where, if that is cheap",
        "AL502",
    ),
    "loop": Why(
        "splits",
        "the CPU waits after each step, to know whether there is another one",
        "use a fixed number of steps, which are unrolled",
        "AL502",
    ),
    "unsupported_operator": Why(
        "splits", "it is tagged as not recordable", "replace it, or keep it at the end", "AL505"
    ),
    "sparse": Why("splits", "the size of a sparse output depends on data", "use a dense tensor", "AL505"),
    "effect": Why(
        "prevents",
        "it runs in Python, so it would run only during recording, not in a replay",
        "move it out of the compiled function",
        "AL505",
    ),
    "generator": Why(
        "prevents",
        "RNG state is read or set on the CPU, once for all replays",
        "seed outside of the compiled function, and use the default generator of the GPU",
        "AL505",
    ),
    "symbolic_size": Why(
        "repeats",
        "a recording is for one size: each new size needs another recording with memory of its own",
        "pad to a few sizes",
    ),
    "wrapper_step": Why("beside", "the wrapper does it around the graphs, on each call", ""),
}
"""For each kind: its consequence, its reason, its remedy and its diagnostic."""

OF_INPUTS: frozenset[BlockerKind] = frozenset(
    {"written_argument", "resized_storage", "cpu_input", "object_input", "second_device"}
)
"""Kinds that are described by a name instead of an expression."""

HOST_READS = frozenset(
    {"aten._local_scalar_dense", "aten.item", "aten.equal", "aten.allclose", "aten.is_nonzero"}
)
"""Operators that return a number to Python."""

HOST_CHECKS = frozenset({"aten._assert_scalar"})

WAITING = frozenset(
    {
        "aten._linalg_check_errors",
        "aten._linalg_eigh",
        "aten._linalg_svd",
        "aten.linalg_eig",
        "aten._linalg_eigvals",
        "aten.linalg_eigvals",
        "aten.linalg_lstsq",
    }
)
"""Operators that torch documents as synchronising the GPU with the CPU."""

UNRECORDABLE = frozenset(
    {
        "aten._fused_moving_avg_obs_fq_helper",
        "aten._fused_moving_avg_obs_fq_helper_functional",
        "fbgemm.dense_to_jagged",
        "fbgemm.jagged_to_padded_dense",
        "run_and_save_rng_state",
        "run_with_rng_state",
    }
)
"""Inductor's list, without the operators of other kinds; the rest is recognised by a tag."""

MASK_WRITES = frozenset({"aten.index_put", "aten.index_put_", "aten._unsafe_index_put"})
BRANCHES = frozenset({"cond"})
LOOPS = frozenset({"map_impl", "scan", "while_loop", "while_loop_stack_output"})

BESIDE = frozenset(
    {
        "copy back mutated inputs",
        "read RNG state",
        "advance RNG state",
        "write to inputs in the backward",
    }
)
"""Wrapper steps that launch work, or wait for it, outside of the graphs."""


VERDICTS: dict[CudaGraphVerdict, str] = {
    "recorded": "recorded whole",
    "in_parts": "recorded in parts",
    "not_recorded": "not recorded",
}


EFFECTS: dict[BlockerEffect, str] = {
    "prevents": "not recorded",
    "splits": "splits it",
    "repeats": "recorded again",
    "beside": "runs beside it",
}


def what_blocks(blocker: CudaGraphBlocker) -> str:
    """By its name, with how many others of its expression are alike: `aten.mul.Tensor and 2 more`."""
    others = blocker.operators - 1
    return f"{blocker.what} and {others} more" if others else blocker.what

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


WHY: dict[BlockerKind, Why] = {
    "written_argument": Why(
        "prevents",
        "the graph writes to it, and each call may bring another tensor, of which a recording knows nothing",
        "hold it in a buffer of the module, or say torch._dynamo.mark_static_address(tensor) where the caller"
        " always passes the same one; or return the new value",
    ),
    "resized_storage": Why(
        "prevents",
        "its storage is exchanged or resized, and a recording holds the addresses of one run",
        "use copy_() into memory of the final size",
    ),
    "object_input": Why("prevents", "it is no tensor: its methods run in Python", "keep it out of the graph"),
    "second_device": Why("prevents", "a recording is of one GPU", "compile the part of each GPU by itself"),
    "cpu_input": Why(
        "splits", "it is on the CPU, and a replay reads the memory of the GPU only", "move it to the GPU once"
    ),
    "cpu_operator": Why("splits", "it runs on the CPU", "make it on the GPU: device=..."),
    "device_copy": Why(
        "splits", "it copies between CPU and GPU, and such a copy waits", "keep the value where it is used"
    ),
    "host_read": Why(
        "splits",
        "the CPU waits for the number, and a replay does not return to Python",
        "keep it a tensor: torch.where in place of `if`, a 0-d tensor in place of the number",
    ),
    "host_check": Why(
        "splits",
        "the CPU checks a number that only the data tells",
        "drop the check, or make it on the input",
    ),
    "waiting_kernel": Why(
        "splits",
        "its kernels stop for the CPU, to report errors or to choose the next step",
        "use the form that returns `info` (torch.linalg.…_ex) where there is one",
    ),
    "data_size": Why(
        "splits",
        "how large its result is only the data tells, and the CPU waits for it to reserve the memory",
        "use a form of fixed size: torch.where, a mask that is multiplied in, torch.nonzero_static",
    ),
    "mask_write": Why(
        "splits",
        "a mask chooses the places of several values, and the CPU waits for their number",
        "use torch.where, or masked_scatter",
    ),
    "branch": Why(
        "prevents",
        "the CPU waits for the condition to choose a branch",
        "compute both sides and take torch.where, where that is cheap",
    ),
    "loop": Why(
        "splits",
        "the CPU waits after each step, to see whether there is a next one",
        "use a fixed number of steps, which are unrolled",
    ),
    "refused_operator": Why(
        "splits", "its author or torch says that it cannot be recorded", "replace it, or keep it at the end"
    ),
    "sparse": Why("splits", "how large a sparse result is only the data tells", "use a dense tensor"),
    "effect": Why(
        "prevents",
        "it runs in Python, so it would run while recording and never in a replay",
        "move it out of the compiled function",
    ),
    "generator": Why(
        "prevents",
        "the state of the random numbers is read or set on the CPU, once for all replays",
        "seed outside of the compiled function, and draw from the default generator of the GPU",
    ),
    "symbolic_size": Why(
        "repeats",
        "a recording is for one size: each new one is recorded again, and keeps memory of its own",
        "pad to a few sizes",
    ),
    "wrapper_step": Why("beside", "the wrapper does it around the graphs, on each call", ""),
}
"""For each kind: its consequence, its reason and its remedy."""

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

REFUSED = frozenset(
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
        "write back mutated inputs",
        "read the random state",
        "advance the random state",
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

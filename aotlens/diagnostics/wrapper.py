"""Family AL5: what the wrapper costs on each call, and what keeps CUDA graphs from recording a target."""

from collections.abc import Iterator
from dataclasses import replace

from aotlens.diagnostics.findings import Check, Limits, copy_cost, finding_at
from aotlens.diagnostics.mutation import is_copied_for_autograd
from aotlens.diagnostics.rule import Rule
from aotlens.model.cuda_graphs import CudaGraphBlocker
from aotlens.model.report import Diagnostic, Span, Target
from aotlens.view.cuda_graphs import OF_INPUTS, WHY
from aotlens.view.quantities import human_bytes

ABOUT = (
    " Reported with `--gpu`, or if tensors are on a GPU; it matters if you use CUDA graphs"
    ' (`mode="reduce-overhead"`, `torch.cuda.graph`).'
)


RULES: tuple[Rule, ...] = (
    Rule(
        "AL501",
        "The wrapper copies large tensors on each call",
        "warning",
        "The wrapper copies at least 16 MiB on every call, for example to update mutated buffers or a cache.",
        "The copied bytes are read and written on every call; nothing can be fused with the copy.",
        "Write only a slice (`cache[:, pos] = new`) under `torch.no_grad()`, so that the write stays in"
        " the graph, or return the new value.",
        "def step(cache, x):\n    cache.copy_(torch.roll(cache, 1, 0))\n    return cache @ x",
    ),
    Rule(
        "AL502",
        "The CPU waits for the GPU inside a graph",
        "information",
        "The CPU needs a value from the GPU: a number that Python reads (`.item()`), the size of an output"
        " (`x[mask]`, `nonzero`, `unique`), the branch of a `cond`, the end of a loop, or an error check"
        " of a linear algebra kernel. A CUDA graph replays without Python, so it ends here and another one"
        " starts after it; a `cond` prevents recording altogether." + ABOUT,
        "The GPU is idle while the CPU waits, with and without CUDA graphs, and part of the graph is"
        " launched kernel by kernel.",
        "Keep the number as a tensor, choose with `torch.where`, use operators whose sizes do not depend"
        " on data (`torch.nonzero_static`, multiplication by a mask).",
        "def loss(x, mask):\n    return x[mask].square().sum()",
        "def loss(x, mask):\n    return torch.where(mask, x, 0).square().sum()",
    ),
    Rule(
        "AL503",
        "An argument is written to inside a graph",
        "information",
        "The graph writes to a tensor that the caller passes, or swaps its storage. A CUDA graph uses the"
        " addresses of the recorded run. If each call passes another tensor, it can read a copy but not"
        " write to the tensor. Parameters and buffers keep their addresses and are not reported." + ABOUT,
        "The graph is launched kernel by kernel, as without CUDA graphs.",
        "Make the tensor a buffer of the module, or call `torch._dynamo.mark_static_address(cache)` if"
        " every call passes the same tensor, or return the new value.",
        "def step(cache, x):\n    cache[0] = x\n    return cache.sum(0)",
        "class Step(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('cache', torch.zeros(8, 16))\n\n"
        "    def forward(self, x):\n        self.cache[0] = x\n        return self.cache.sum(0)",
    ),
    Rule(
        "AL504",
        "A CPU tensor in a GPU graph",
        "information",
        "The target computes on a GPU, and this tensor is on the CPU, on another GPU, or is copied between"
        " them. A replay reads and writes the memory of one GPU only." + ABOUT,
        "A copy over the bus on each call, for which the CPU or the GPU waits; a CUDA graph is split there.",
        "Create the tensor on the device that uses it (`device=x.device`), move inputs once, keep"
        " constants in buffers of the module. Inductor runs a constructor on the GPU if its output is only"
        " copied there, and puts constant numbers into the kernels: neither is reported.",
        "def scale(x):  # x on the GPU\n    return x * torch.tensor([0.5, 1.0, 2.0]).to(x.device)",
        "class Scale(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('by', torch.tensor([0.5, 1.0, 2.0]))\n\n"
        "    def forward(self, x):\n        return x * self.by",
    ),
    Rule(
        "AL505",
        "An operator that CUDA graphs cannot record",
        "information",
        "It runs in Python (a print, an effect, a method of an object), sets or reads RNG state, has a"
        " sparse output, or is tagged as not recordable (`cudagraph_unsafe`). Random operators on the"
        " GPU's default generator can be recorded." + ABOUT,
        "Python code would run only during recording; so the graph is launched kernel by kernel, or split.",
        "Move it out of the compiled function: seed and print before or after it.",
        "def noisy(x):\n    torch.manual_seed(0)\n    return x + torch.randn_like(x)",
        "torch.manual_seed(0)\n\ndef noisy(x):\n    return x + torch.randn_like(x)",
    ),
)


CODES = {kind: why.code for kind, why in WHY.items() if why.code}
"""By kind of blocker; a kind without a code is no finding."""


def large_wrapper_copies(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL501: a large write-back that AL101 and AL105 do not report."""
    for entry in target.inputs:
        size = (entry.tensor.bytes or 0) if entry.tensor else 0
        copied = entry.mutation_type == "mutated_out_graph" and entry.mutates_data
        is_reported = target.mode == "training" and is_copied_for_autograd(entry)
        if copied and size >= limits.write_back_bytes and not is_reported:
            message = (
                f"the wrapper copies the new value of `{entry.name}` after the graph: {human_bytes(size)}"
                " on every call; write only the slice that changes, or return the new value"
            )
            finding = finding_at(entry.sites, target, "AL501", "warning", message)
            yield replace(finding, cost=copy_cost(target, size))


def cuda_graph_blockers(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL502 to AL505: reasons why a CUDA graph cannot record the target, or not whole.

    Forward and backward of one expression are one finding.
    """
    blockers = target.cuda_graph.blockers if target.cuda_graph is not None else ()
    groups: dict[tuple[str, Span | str], list[CudaGraphBlocker]] = {}
    for blocker in blockers:
        if blocker.kind in CODES:
            location = blocker.sites[0].span if blocker.sites else blocker.what
            groups.setdefault((CODES[blocker.kind], location), []).append(blocker)
    for (code, _), same in groups.items():
        yield finding_at(same[0].sites, target, code, "information", _message(same))


def _message(blockers: list[CudaGraphBlocker]) -> str:
    """Return the message for one expression; the first of its blockers gives the reason."""
    first = blockers[0]
    what = first.sites[0].text if first.sites and first.kind not in OF_INPUTS else first.what
    prevents = any(blocker.effect == "prevents" for blocker in blockers)
    phases = " and ".join(dict.fromkeys(blocker.phase for blocker in blockers))
    follows = "prevents CUDA graphs from recording" if prevents else "splits the CUDA graph of"
    return f"`{what}` {follows} the {phases}: {first.reason}; {first.advice}"


CHECKS: tuple[Check, ...] = (large_wrapper_copies, cuda_graph_blockers)

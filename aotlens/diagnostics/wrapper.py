"""Family AL5: what the wrapper costs on each call, and what keeps CUDA graphs from recording a target."""

from collections.abc import Iterator
from dataclasses import replace

from aotlens.diagnostics.findings import Check, Limits, copy_cost, finding_at
from aotlens.diagnostics.mutation import is_copied_for_autograd
from aotlens.diagnostics.rule import Rule
from aotlens.model.cuda_graphs import BlockerKind, CudaGraphBlocker
from aotlens.model.report import Diagnostic, Span, Target
from aotlens.view.cuda_graphs import OF_INPUTS
from aotlens.view.quantities import human_bytes

ABOUT = (
    " Told with `--gpu`, or where tensors are on a GPU; of interest to who replays CUDA graphs"
    ' (`mode="reduce-overhead"`, `torch.cuda.graph`).'
)


RULES: tuple[Rule, ...] = (
    Rule(
        "AL501",
        "The wrapper copies much on each call",
        "warning",
        "Work outside of the graphs moves at least 16 MiB on every call, for example to write changed"
        " buffers or a cache back.",
        "The copied bytes, twice through memory, on every call; nothing can be fused with it.",
        "Change a slice in place (`cache[:, pos] = new`) under `torch.no_grad()`, so that the write"
        " stays in the graph, or return the new value.",
        "def step(cache, x):\n    cache.copy_(torch.roll(cache, 1, 0))\n    return cache @ x",
    ),
    Rule(
        "AL502",
        "The CPU waits for the GPU inside a graph",
        "information",
        "A value of the GPU decides what happens next: a number that Python reads (`.item()`), the size of"
        " a result (`x[mask]`, `nonzero`, `unique`), the branch of a `cond`, the end of a loop, or an error"
        " check of a linear algebra kernel. A CUDA graph replays without Python in between, so it ends"
        " before this and another one begins behind it; a `cond` prevents it altogether." + ABOUT,
        "The GPU runs dry while the CPU waits, with and without CUDA graphs, and the launches that one"
        " replay would have spared come back for a part of the graph.",
        "Keep the number a tensor, choose with `torch.where`, give sizes that do not depend on data"
        " (`torch.nonzero_static`, a mask that is multiplied in).",
        "def loss(x, mask):\n    return x[mask].square().sum()",
        "def loss(x, mask):\n    return torch.where(mask, x, 0).square().sum()",
    ),
    Rule(
        "AL503",
        "An argument is written to inside a graph",
        "information",
        "The graph writes to a tensor that the caller passes, or exchanges its storage. A CUDA graph holds"
        " the addresses of the run that was recorded; of a tensor that is another one at each call it can"
        " read a copy, but not write to it. Parameters and buffers of a module stay where they are and are"
        " not reported." + ABOUT,
        "The graph is launched kernel by kernel, as without CUDA graphs.",
        "Make the tensor a buffer of the module, or call `torch._dynamo.mark_static_address(cache)` where"
        " every call passes the same one; or return the new value.",
        "def step(cache, x):\n    cache[0] = x\n    return cache.sum(0)",
        "class Step(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('cache', torch.zeros(8, 16))\n\n"
        "    def forward(self, x):\n        self.cache[0] = x\n        return self.cache.sum(0)",
    ),
    Rule(
        "AL504",
        "A value of the CPU in a graph of the GPU",
        "information",
        "The target computes on a GPU, and this tensor is on the CPU, on another GPU, or is copied between"
        " them. A replay reads and writes the memory of one GPU only." + ABOUT,
        "A copy over the bus on each call, for which the CPU or the GPU waits; a CUDA graph is split"
        " around it.",
        "Make the tensor where it is used (`device=x.device`), move inputs once, keep constants in buffers of"
        " the module. A constructor whose result is only copied to the GPU is made there by Inductor, and a"
        " constant number goes into the kernels: neither is reported.",
        "def scale(x):  # x on the GPU\n    return x * torch.tensor([0.5, 1.0, 2.0]).to(x.device)",
        "class Scale(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('by', torch.tensor([0.5, 1.0, 2.0]))\n\n"
        "    def forward(self, x):\n        return x * self.by",
    ),
    Rule(
        "AL505",
        "An operator that no CUDA graph records",
        "information",
        "It runs in Python (a print, an effect, a method of an object), sets or reads the state of the"
        " random numbers, has a sparse result, or its author or torch says that it cannot be recorded (the"
        " tag `cudagraph_unsafe`). Draws from the GPU's default generator are recorded well." + ABOUT,
        "What runs in Python would run while recording only; the graph is launched kernel by kernel"
        " instead, or split.",
        "Move it out of the compiled function: seed and print before or behind it.",
        "def noisy(x):\n    torch.manual_seed(0)\n    return x + torch.randn_like(x)",
        "torch.manual_seed(0)\n\ndef noisy(x):\n    return x + torch.randn_like(x)",
    ),
)


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


def large_wrapper_copies(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL501: a large write-back that AL101 and AL105 do not report."""
    for entry in target.inputs:
        size = (entry.tensor.bytes or 0) if entry.tensor else 0
        copied = entry.mutation_type == "mutated_out_graph" and entry.mutates_data
        is_reported = target.mode == "training" and is_copied_for_autograd(entry)
        if copied and size >= limits.write_back_bytes and not is_reported:
            message = (
                f"the wrapper writes `{entry.name}` back after the graph: {human_bytes(size)} are copied on"
                " every call; change only the slice that is new, or return the new value"
            )
            finding = finding_at(entry.sites, target, "AL501", "warning", message)
            yield replace(finding, cost=copy_cost(target, size))


def cuda_graph_blockers(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL502 to AL505: reasons why a CUDA graph cannot record the target, or not whole."""
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
    follows = "keeps CUDA graphs from recording" if prevents else "splits the CUDA graph of"
    return f"`{what}` {follows} the {phases}: {first.reason}; {first.advice}"


CHECKS: tuple[Check, ...] = (large_wrapper_copies, cuda_graph_blockers)

"""The rows of the catalogue about kernels for a GPU: the family AL6."""

from aotlens.report.rule import Rule

GPU = (
    Rule(
        "AL601",
        "A kernel spills registers",
        "warning",
        "The kernel keeps more values alive at once than a thread has registers for, so the compiler writes"
        " some to memory and reads them back. Told from 32 bytes a thread on, a warning from 128 on."
        " Arrays that a function has of its own (the slow path of `sin` for large arguments) are not"
        " spills.",
        "Memory traffic in the middle of arithmetic, for every thread. It mostly hits the L1 cache, which it"
        " takes from other data.",
        "Let one expression need less at once: a reduction of fewer terms together, a long chain cut by a"
        " value that is kept, or a smaller block where the report lists another configuration without"
        " spills.",
        "def mix(x, y):  # f64[76, 1048576] each\n    parts = [torch.exp(row) for row in x.unbind(0)]\n"
        "    total = sum(parts) + sum(y.unbind(0))\n"
        "    return sum(p * q / total for p, q in zip(parts, y.unbind(0)))",
    ),
    Rule(
        "AL602",
        "A kernel fills little of the GPU",
        "information",
        "A multiprocessor can hold a number of warps at once, and changes between them while some wait for"
        " memory. Here fewer than a quarter fit: the finding names what runs out first (registers, shared"
        " memory, warps, blocks). Not reported: matrix products, which are made for few warps with many"
        " registers, and launches too small to fill the GPU at all.",
        "Waiting for memory shows, as there is little else to run meanwhile. How much cannot be told without"
        " a run.",
        "Registers: keep fewer values alive in one expression. Shared memory: reduce over fewer values at"
        " once. Blocks: more elements for each block. Compare the other configurations that the report"
        " lists.",
        "def mix(x):  # f32[64, 1048576]\n    total = sum(torch.sin(x[i]) for i in range(64))\n"
        "    return torch.stack([torch.sin(x[i]) / total for i in range(64)])",
    ),
    Rule(
        "AL603",
        "Double precision on a GPU",
        "warning",
        "The expression computes in `float64` on a GPU target. Most often the type came in with a NumPy"
        " array, `.double()`, or a tensor made under another default type.",
        "Twice the bytes of `float32`; arithmetic at half of its rate on data-centre GPUs (V100, A100, H100,"
        " B200: information) and at 1/32 to 1/64 on all others (warning).",
        "Convert what comes in (`torch.from_numpy(a).float()`), and give constants the type of the data."
        " Sums that need more than `float32` can often be taken alone in `float64`.",
        "def loss(x, mean):  # mean: f64[512]\n    return ((x - mean) ** 2).mean()",
        "def loss(x, mean):\n    return ((x - mean.to(x.dtype)) ** 2).mean()",
    ),
    Rule(
        "AL604",
        "An operator splits what a GPU could do in one pass",
        "information",
        "Elementwise work stands before and behind an operator that runs as a library call (a sort, a"
        " selection, a Fourier transform, a custom operator). Nothing is fused into such a call, so its"
        " input is written to memory by one kernel and its result is read by another. Told from 4 MiB a"
        " call on; matrix products, convolutions and attention, whose cost is their own work, are not"
        " reported.",
        "The values on both sides go through memory twice more than the operator itself needs.",
        "Move elementwise work from one side to the other where the result is the same: what is monotonic"
        " (`relu` before `sort`) can go behind, together with what stands there; what follows a selection"
        " that leaves few values costs little. Where only a part of a sorted result is used, `topk` or"
        " `amax` spares most of it.",
        "def ranks(x):  # f32[64, 65536]\n    return x.relu().sort(-1).values * 2",
        "def ranks(x):\n    return x.sort(-1).values.relu() * 2",
    ),
    Rule(
        "AL605",
        "Elements that lie apart multiply the traffic",
        "warning",
        "A kernel reads elements of which only a few lie in each 32 bytes: every eighth column, one field of"
        " an array of structures, single elements at given places. Memory moves whole sectors of 32 bytes,"
        " and what lies between is not used by that kernel. Told where that is at least twice what is needed"
        " and 4 MiB more. A transposed read is not reported: kernels read it block by block, and use all of"
        " each sector. For single elements at places that data gives, the figure is the most that it can"
        " be, and the finding information.",
        "Time: what the memory moves sets the pace of such kernels.",
        "Put together in memory what is read together: change the order of dimensions where the tensor is"
        " made, take one `contiguous()` copy of what is read several times, or gather rows in place of"
        " single elements.",
        "def field(points):  # f32[4194304, 8]\n    return points[:, 0].exp()",
        "def field(points):  # f32[8, 4194304]\n    return points[0].exp()",
    ),
    Rule(
        "AL606",
        "A kernel could not be compiled for the GPU",
        "error",
        "Triton refused a kernel for the GPU that `--gpu` names, or took longer than its time limit. The"
        " other kernels are shown; this one has no figures.",
        "Nothing is known of the kernel's cost, and on that GPU it would fail.",
        "For a kernel of your own the message tells its line. A type that the GPU lacks (bfloat16 before"
        " `sm_80`, float8 before `sm_89`) needs another type or another GPU; for a time limit there is"
        " `--kernel-time-limit`.",
        "def scaled(x):  # bf16, --gpu t4\n    return (x * 2).relu()",
        "def scaled(x):  # f16\n    return (x * 2).relu()",
    ),
)

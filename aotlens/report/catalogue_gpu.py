"""The rows of the catalogue about kernels for a GPU: the family AL6."""

from aotlens.report.rule import Rule

GPU = (
    Rule(
        "AL601",
        "A kernel spills registers",
        "warning",
        "The kernel keeps more values alive at once than a thread has registers for, so the compiler writes"
        " some to memory and reads them back. A finding is a warning from 128 bytes a thread on, information"
        " below. Arrays that a function has of its own (the slow path of `sin` for large arguments) are not"
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
)

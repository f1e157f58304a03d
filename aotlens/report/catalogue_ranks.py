"""The rows of family AL4 about ranks of one run that compile different code."""

from aotlens.report.rule import Rule

RANKS = (
    Rule(
        "AL410",
        "Ranks that compile different graphs",
        "warning",
        "Under one compile id, some ranks of the run compiled another graph than the others, or none. The"
        " reason is a branch on the rank, or data of other sizes. Graphs count as equal when only a GPU's"
        " number or a process group's name differs.",
        "Each rank compiles for itself, so the slowest compilation holds up all of them, and a collective in"
        " one graph that another graph lacks hangs the job.",
        "The message names the first node in which they differ, and its line on both sides. Have all ranks"
        " take the same branch inside of compiled functions, and pad batches to the same size.",
        "@torch.compile\ndef step(x):\n    if dist.get_rank() == 0:\n        x = x * 2\n    return x.relu()",
        "@torch.compile\ndef step(x, scale):\n    return (x * scale).relu()",
    ),
    Rule(
        "AL411",
        "Ranks that run different collectives",
        "error",
        "Collectives meet in the order in which ranks start them. In the compiled graphs of two ranks, the"
        " collectives at the same position differ in operation, sizes or data type, or one rank has no more.",
        "The ranks wait for each other until the watchdog ends the job, or read memory of the wrong size.",
        "The message names both collectives; make the code before them the same on all ranks.",
        "@torch.compile\ndef step(x):\n    if dist.get_rank() == 0:\n        dist.all_reduce(x)\n"
        "    return x",
        "@torch.compile\ndef step(x):\n    dist.all_reduce(x)\n    return x",
    ),
)

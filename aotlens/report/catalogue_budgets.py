"""The rows of family AL8: limits that the user set, and comments that hide findings."""

from aotlens.report.rule import Rule

_WHERE = (
    " The limits stand in `pyproject.toml`, for all targets, for files or for single targets: see"
    " docs/check.md."
)

BUDGETS = (
    Rule(
        "AL801",
        "More is saved for the backward than the budget allows",
        "error",
        "`aotlens check` found a target that keeps more bytes from forward to backward than"
        " `max-saved-bytes`. The largest values are named." + _WHERE,
        "Memory between forward and backward.",
        "See what AL301 to AL306 offer for the same target (a checkpoint, a smaller type, a mask), or raise"
        " the limit where the growth is wanted.",
        '# with max-saved-bytes = "1 MiB"\ndef step(x, weight):  # x is f32[4096, 4096]\n'
        "    return torch.sin(x @ weight).exp().sum()",
    ),
    Rule(
        "AL802",
        "The peak is higher than the budget allows",
        "error",
        "The predicted peak of forward and backward is above `max-peak-bytes`. What is alive there is named."
        + _WHERE,
        "Memory while the target runs.",
        "Free large values earlier, checkpoint what is alive at the peak, or raise the limit.",
        '# with max-peak-bytes = "1 MiB"\ndef step(x):  # x is f32[4096, 4096]\n    return (x * 2).sum()',
    ),
    Rule(
        "AL803",
        "The wrapper does more on each call than the budget allows",
        "error",
        "The runtime wrapper takes more steps on each call than `max-wrapper-steps`. The steps are named, and"
        " the expressions that cause them." + _WHERE,
        "Time on each call, outside of the compiled graphs.",
        "See what AL1, AL2 and AL5 say of the same target, or raise the limit.",
        "# with max-wrapper-steps = 1\ndef step(state, x):\n    state.mul_(0.9)\n    return state + x",
        "def step(state, x):\n    state = state * 0.9\n    return state, state + x",
    ),
    Rule(
        "AL804",
        "An ignore comment hides nothing",
        "warning",
        "A comment `# aotlens: ignore[CODE]` stands at a statement that has no such finding, or names a code"
        " that does not exist. Told of statements that `aotlens check` saw run, when the code is selected.",
        "A later finding would be hidden without anybody having looked at it.",
        "Remove the comment, or the code from its list.",
        "def double(x):\n    return x * 2  # aotlens: ignore[AL101]",
        "def double(x):\n    return x * 2",
    ),
    Rule(
        "AL805",
        "More graph breaks than the budget allows",
        "error",
        "Dynamo breaks the graph of a function at more expressions than `max-graph-breaks`. The expressions"
        " are named." + _WHERE + " `aotlens why` applies the limits too.",
        "Fusion across each break, and a second set of guards on each call.",
        "Follow the hint of each AL406, or raise the limit.",
        "# with max-graph-breaks = 0\ndef step(x):\n    y = x.sin()\n    print(y.sum())\n    return y.cos()",
        "def step(x):\n    return x.sin().cos()",
    ),
    Rule(
        "AL806",
        "More recompilations than the budget allows",
        "error",
        "Dynamo recompiles a function more often than `max-recompilations`. The values that changed are"
        " named." + _WHERE + " `aotlens why` applies the limits too.",
        "The time of each compilation; after too many of them, new calls run in eager.",
        "Follow the hint of each AL407, or raise the limit.",
        "# with max-recompilations = 1\nfor step in range(5):\n    compiled(x, step / 10)",
        "for step in range(5):\n    compiled(x, torch.tensor(step / 10))",
    ),
)

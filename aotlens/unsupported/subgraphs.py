"""Higher-order operators: what their subgraphs may read, write and return."""

from aotlens.unsupported.case import Case

CASES = (
    Case(
        "outer-gradient-in-subgraph",
        "a subgraph of a higher-order operator that reads a tensor from outside also where torch functions"
        " are disabled (`DisableTorchFunction`), so that its gradient would be lost",
        "pass the tensor as an operand",
    ),
    Case(
        "random-op-in-backward",
        "a random op in a function of `{operator}` that the backward calls again: it would get other numbers",
        "call it outside `{operator}` and pass the numbers as an operand",
    ),
    Case(
        "region-operand-written",
        "a second derivative through a marked region whose operand is written to afterwards",
        "clone the operand before the call",
    ),
    Case(
        "higher-order-operator",
        "the higher-order operator `{operator}`",
        "call what it runs without the operator",
    ),
    Case(
        "function-operand",
        "a function as an argument of the higher-order operator `{operator}`",
        "pass tensors and plain values only",
    ),
    Case(
        "subgraph-uses-outer-tensor",
        "a subgraph of `{operator}` that reads or returns `{tensor}` from outside",
        "pass it as an operand",
    ),
    Case(
        "operand-written",
        "a write to an operand in a subgraph of a higher-order operator",
        "write to a clone and return it",
    ),
    Case(
        "outer-number-in-subgraph",
        "a number from outside (a size, `item()`) in a subgraph of a higher-order operator with a gradient",
        "pass it as an operand, in a tensor",
    ),
    Case(
        "operand-mutation",
        "mutation by `{mutation}` of operand {index} in a subgraph of `{operator}`",
        "write to a clone and return it, or keep what writes to it outside",
    ),
)

"""Random ops and the RNG state."""

from aotlens.unsupported.case import Case

CASES = (
    Case(
        "functional-rng-operator",
        "`{operator}` with functional RNG (`functionalize_rng_ops`): it is not known as a "
        "function of a philox seed and offset",
        "set `functionalize_rng_ops` to False, or pass it a generator",
    ),
    Case(
        "functional-rng-devices",
        "functional RNG on two devices, `{first}` and `{second}`",
        "use random ops on one device",
    ),
    Case(
        "new-seed",
        "a random seed that is chosen inside the function (`torch.seed`)",
        "choose it outside",
    ),
    Case(
        "initial-seed",
        "a function that reads the seed (`torch.initial_seed`)",
        "read it outside",
    ),
    Case(
        "new-generator",
        "a generator that the function creates (`torch.Generator()`)",
        "create it outside and pass it, or seed torch's own generator (`torch.manual_seed`)",
    ),
    Case(
        "generator-state",
        "a function that sets the state of the generator `{generator}`",
        "set it outside",
    ),
    Case(
        "default-generator-state",
        "a function that sets the state of torch's generator itself",
        "use `torch.manual_seed` or `torch.set_rng_state`",
    ),
    Case(
        "functional-rng-in-subgraph",
        "a random op in a subgraph of a higher-order operator, with functional RNG (`functionalize_rng_ops`)",
        "call it outside the subgraph and pass the numbers as an operand",
    ),
)

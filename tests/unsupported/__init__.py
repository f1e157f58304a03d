"""A small program for each unsupported case that `tests/programs` does not show; they are on the page, too.

Each raises its case by itself: it makes its arguments, compiles, and calls what was compiled.
"""

from tests.unsupported import (
    autograd,
    export,
    gpu,
    memory,
    operators,
    outputs,
    python,
    random_ops,
    sizes,
    subclasses,
    subgraphs,
    torchbind,
)
from tests.unsupported.example import Example

EXAMPLES: tuple[Example, ...] = (
    *memory.EXAMPLES,
    *outputs.EXAMPLES,
    *subclasses.EXAMPLES,
    *autograd.EXAMPLES,
    *operators.EXAMPLES,
    *torchbind.EXAMPLES,
    *subgraphs.EXAMPLES,
    *python.EXAMPLES,
    *random_ops.EXAMPLES,
    *sizes.EXAMPLES,
    *export.EXAMPLES,
    *gpu.EXAMPLES,
)

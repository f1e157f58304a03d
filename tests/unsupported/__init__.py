"""A small program for each unsupported case that `tests/programs` does not show; they are on the page, too.

Each raises its case by itself: it makes its arguments, compiles, and calls what was compiled.
"""

from tests.unsupported import autograd, export, gpu, memory, operators, python, sizes
from tests.unsupported.example import Example

EXAMPLES: tuple[Example, ...] = (
    *memory.EXAMPLES,
    *autograd.EXAMPLES,
    *operators.EXAMPLES,
    *python.EXAMPLES,
    *sizes.EXAMPLES,
    *export.EXAMPLES,
    *gpu.EXAMPLES,
)

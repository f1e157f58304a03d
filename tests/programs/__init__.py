"""The shared list of test programs: each runs through every stage and is compared with eager.

`PROGRAMS` holds all of them; `tagged(tag)` those of one tag.  A new case is one function in the file of
its kind.
"""

from tests.programs import (
    combinations,
    from_random_programs,
    unsupported_cases,
    wrong_elsewhere,
)
from tests.programs.gradients import (
    autograd,
    checkpointing,
    regions,
    saved_hooks,
    transforms,
    undefined_tangents,
)
from tests.programs.inputs import (
    aliasing_inputs,
    function_views,
    leaves,
    metadata,
    mutation,
    mutation_kinds,
    storage_swaps,
    view_writes,
    views_of_inputs,
    views_of_intermediates,
)
from tests.programs.operators import (
    custom_operators,
    data_dependent,
    distributed,
    effects,
    graph_operators,
    higher_order,
    jagged,
    randomness,
    subclasses,
)
from tests.programs.program import Program
from tests.programs.python import (
    callables,
    containers,
    function_kinds,
    functions,
    modes,
    module_kinds,
    modules,
    side_effects,
)

__all__ = ["PROGRAMS", "Program", "tagged", "untagged"]

FILES = (
    mutation,
    mutation_kinds,
    metadata,
    undefined_tangents,
    storage_swaps,
    from_random_programs,
    views_of_inputs,
    view_writes,
    views_of_intermediates,
    wrong_elsewhere,
    aliasing_inputs,
    autograd,
    function_kinds,
    function_views,
    functions,
    graph_operators,
    module_kinds,
    modules,
    modes,
    saved_hooks,
    containers,
    custom_operators,
    effects,
    randomness,
    regions,
    data_dependent,
    callables,
    side_effects,
    combinations,
    transforms,
    checkpointing,
    higher_order,
    unsupported_cases,
    distributed,
    jagged,
    leaves,
    subclasses,
)

PROGRAMS: tuple[Program, ...] = tuple(program for file in FILES for program in file.cases.programs)


def tagged(tag: str) -> tuple[Program, ...]:
    """The programs of one tag."""
    return tuple(program for program in PROGRAMS if tag in program.tags)


def untagged(tag: str) -> tuple[Program, ...]:
    """The programs without that tag."""
    return tuple(program for program in PROGRAMS if tag not in program.tags)

"""The shared list of test programs: each runs through every stage and is compared with eager.

`PROGRAMS` holds all of them; `tagged(tag)` those of one tag.  A new case is one function in the file of
its kind.
"""

from tests.programs import (
    aliasing_inputs,
    autograd,
    callables,
    checkpointing,
    combinations,
    containers,
    custom_operators,
    data_dependent,
    distributed,
    effects,
    exchanges,
    found_at_random,
    function_kinds,
    function_views,
    functions,
    given_operators,
    higher_order,
    jagged,
    leaves,
    left_behind,
    metadata,
    missing_gradients,
    modes,
    module_kinds,
    modules,
    mutation,
    mutation_kinds,
    randomness,
    refused,
    regions,
    saved_hooks,
    subclasses,
    transforms,
    view_writes,
    views_of_inputs,
    views_of_intermediates,
    wrong_elsewhere,
)
from tests.programs.program import Program

__all__ = ["PROGRAMS", "Program", "tagged", "untagged"]

FILES = (
    mutation,
    mutation_kinds,
    metadata,
    missing_gradients,
    exchanges,
    found_at_random,
    views_of_inputs,
    view_writes,
    views_of_intermediates,
    wrong_elsewhere,
    aliasing_inputs,
    autograd,
    function_kinds,
    function_views,
    functions,
    given_operators,
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
    left_behind,
    combinations,
    transforms,
    checkpointing,
    higher_order,
    refused,
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

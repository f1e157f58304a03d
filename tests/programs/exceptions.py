"""What a program of the list does otherwise in one of the ways, and why: known or symbolic sizes, a backend.

Promise: a row of `EXCEPTIONS` stands for a refusal by name, one of `OTHER_VALUES` for values that
are Inductor's own.  What is refused in every way says so beside the program (`refused`, `later`).
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from aotlens.verify.compare import Difference


@dataclass(frozen=True, slots=True)
class RefusedThere:
    """One reason, and the programs that it holds for."""

    reason: str
    message: str
    """A phrase of the refusal."""
    programs: tuple[str, ...]
    """Names or patterns."""
    backend: Literal["eager", "inductor"] | None = None
    """None: with either."""
    dynamic: bool | None = None
    """None: under known and symbolic sizes."""

    def covers(self, program: str, backend: str, dynamic: bool, message: str) -> bool:
        return (
            self.backend in (None, backend)
            and self.dynamic in (None, dynamic)
            and self.message in message
            and any(fnmatchcase(program, pattern) for pattern in self.programs)
        )


@dataclass(frozen=True, slots=True)
class DiffersThere:
    """Why Inductor's results are not eager's, and the programs that show it."""

    reason: str
    kinds: frozenset[str]
    """Of difference."""
    programs: tuple[str, ...]
    relative: float | None = None
    """Largest error, as a part of the largest value; None: any."""

    def covers(self, program: str, backend: str, difference: Difference) -> bool:
        error = difference.max_rel
        return (
            backend == "inductor"
            and difference.kind in self.kinds
            and (self.relative is None or (error is not None and error <= self.relative))
            and any(fnmatchcase(program, pattern) for pattern in self.programs)
        )


EXCEPTIONS = (
    RefusedThere(
        "a base under the input would fix the sizes for every call, also of those who only read it",
        "that repeats elements (`expand`, `unfold`, `as_strided`)",
        (
            "view_writes/part_of_an_expanded_input",
            "view_writes/write_to_a_part_of_an_expanded_argument",
            "view_writes/part_of_an_input_whose_rows_overlap",
        ),
        dynamic=True,
    ),
    RefusedThere(
        "Inductor removes the copy that gives the results of both branches the same storage offset",
        "expected same storage_offset",
        ("higher_order/cond_writes_through_a_view_in_one_branch",),
        backend="inductor",
    ),
    RefusedThere(
        "Inductor uses the default generator alone, whose state it does not read",
        "Inductor cannot compile",
        (
            "randomness/*generator*",
            "randomness/seeded_*",
            "randomness/state_*",
            "randomness/forked",
            "randomness/drawn_from_a_state_that_was_read",
        ),
        backend="inductor",
    ),
    RefusedThere(
        "Inductor's kernel for a score function names a size that it is not given",
        "C++ compile error",
        ("higher_order/flexible_attention_with_a_bias",),
        backend="inductor",
        dynamic=True,
    ),
    RefusedThere(
        "Inductor's code knows the symbols of sizes and strides alone",
        "a symbol for where an input starts on its storage",
        (
            "view_writes/strided_view_of_an_input_inside_a_storage",
            "view_writes/write_under_a_strided_view_inside_the_input",
            "metadata/data_and_as_strided_in_place_further_inside",
        ),
        backend="inductor",
        dynamic=True,
    ),
    RefusedThere(
        "Inductor resizes a storage to known sizes alone",
        "target: inductor.resize_storage_bytes_.default",
        ("storage_swaps/storage_resized_*", "storage_swaps/memory_given_back_*"),
        backend="inductor",
        dynamic=True,
    ),
    RefusedThere(
        "torch's rule for layer norm of all at once takes known sizes alone",
        "an operator whose rule for `torch.func.vmap` needs static sizes",
        ("transforms/jacobian_of_normalised_rows",),
        dynamic=True,
    ),
    RefusedThere(
        "torch's derivative along a direction makes its tensors from known sizes",
        "an operator that needs static sizes, under symbolic sizes",
        ("transforms/linearized_with_dropout",),
        dynamic=True,
    ),
    RefusedThere(
        "how much memory a tensor gets depends on its new sizes, which symbols do not tell",
        "an operator that changes sizes in place, under symbolic sizes",
        (
            "metadata/resize_*",
            "mutation_kinds/grown_by_factories",
            "unsupported_cases/history_given_other_sizes_by_out",
        ),
        dynamic=True,
    ),
)

OTHER_VALUES = (
    DiffersThere(
        "Inductor keeps what lies between two bfloat16 values in float32",
        frozenset({"value", "gradient"}),
        ("modes/autocast_to_another_type", "modes/TwiceTheWeight", "checkpointing/under_autocast"),
        relative=0.01,
    ),
    DiffersThere(
        "Inductor's CPU code adds to the float that it has stored just before where it is read as its bits, "
        "`torch.compile` alone too",
        frozenset({"value"}),
        ("aliasing_inputs/leaf_in_other_memory_beside_its_bits",),
    ),
)

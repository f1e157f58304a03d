"""Where our analysis and torch's say different things of one program, and why ours is right.

"Right" means: as eager, which `test_programs.py` holds for each of these programs.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One reason, and the programs that show it."""

    reason: str
    questions: frozenset[str]
    """What is answered otherwise: the last word of a fact's name."""
    programs: tuple[str, ...]
    """Names or patterns; every program that a pattern fits must disagree in one of the questions."""

    def covers(self, program: str, question: str) -> bool:
        return question in self.questions and self.lists(program)

    def lists(self, program: str) -> bool:
        return any(fnmatchcase(program, pattern) for pattern in self.programs)


ALIASES = frozenset({"output_type", "base", "bases"})

DISAGREEMENTS = (
    Disagreement(
        "results without a gradient that share memory are views of one another, as in eager: autograd is "
        "told of a write through either",
        ALIASES,
        (
            "view_writes/*[!j]_of_intermediate",
            "views_of_intermediates/two_views_none_requires_grad",
            "views_of_intermediates/itself_and_view_none_requires_grad",
            "views_of_intermediates/chunk_none_requires_grad",
            "views_of_intermediates/only_detached_views",
            "leaves/several_on_parts_of_one_memory",
            "modes/results_made_under_inference_mode",
            "modes/views_of_what_is_made_under_inference_mode",
            "views_of_intermediates/under_no_grad",
            "mutation_kinds/lazily_negated_written_and_returned_with_a_view",
            "views_of_intermediates/fresh_constant_views",
            "function_views/of_what_needs_no_gradient",
            "combinations/plain-pair-row-[!p]*",
            "combinations/plain-pair-detached_row-[!p]*",
            "combinations/plain-pair-view-[!p]*",
            "combinations/plain-pair-no_grad_row-[!p]*",
            "combinations/plain-pair-piece-*",
            "combinations/plain-pair-*-piece",
            "combinations/plain-pair-detached-*row",
            "combinations/plain-pair-detached-view",
            "combinations/plain-pair-itself-*row",
            "combinations/plain-pair-itself-view",
            "combinations/pair-detached-detached_row",
            "combinations/pair-detached_row-detached*",
        ),
    ),
    Disagreement(
        "a write through `detach()` or `.data` gives the input no new history, so the graph may write it",
        frozenset({"mutation_type"}),
        (
            "mutation/hidden_by_detach",
            "mutation/hidden_by_data",
            "mutation/hidden_on_non_leaf",
            "view_writes/view_of_other_dtype_of_non_leaf",
            "subclasses/detached_mutated",
            "leaves/view_of_what_was_detached_and_written_to",
            "from_random_programs/scatter_to_every_second_column_transposed",
            "combinations/leaf-detached_mul-*",
            "combinations/tape-detached_mul-*",
            "combinations/view-detached_mul-*",
        ),
    ),
    Disagreement(
        "a write to the tensors inside a wrapper leaves the wrapper's version counter alone, as in eager",
        frozenset({"mutation_type", "hidden_from_autograd"}),
        (
            "subclasses/inner_tensor_mutated",
            "subclasses/data_mutated",
            "subclasses/foreach_mutated",
            "subclasses/some_of_what_is_wrapped_mutated",
        ),
    ),
    Disagreement(
        "the write came before `requires_grad_`, so no history needs it, and the graph may write it",
        frozenset({"mutation_type"}),
        (
            "metadata/requires_grad_after_write",
            "from_random_programs/made_to_require_grad_after_a_written_view",
        ),
    ),
    Disagreement(
        "parts that `unsafe_chunk` makes lie in the memory of the input; torch loses a write to one",
        frozenset({"mutation_type", "mutates_data", "hidden_from_autograd", "under_no_grad"}),
        ("view_writes/write_to_a_part_of_unsafe_chunk",),
    ),
    Disagreement(
        "`requires_grad_` and `detach_` change the caller's tensor: the wrapper repeats it, torch omits it",
        frozenset({"mutation_type"}),
        (
            "metadata/requires_grad_inside",
            "from_random_programs/made_to_require_grad_after_a_view",
            "from_random_programs/set_to_itself_and_required_to_have_a_gradient",
            "metadata/requires_grad_beside_leaf",
            "autograd/gradient_inside_by_what_requires_grad_inside",
            "metadata/detach_in_place",
            "metadata/detach_in_place_after_use",
            "metadata/detached_in_place_before_a_view_of_it",
            "metadata/detached_in_place_after_a_view_of_it",
            "metadata/views_from_before_their_input_is_detached",
            "metadata/view_without_grad_of_a_view_from_before_its_input_is_detached",
            "metadata/detached_in_place_while_another_input_is_a_view_of_it",
            "metadata/hidden_state_made_a_leaf_in_place",
        ),
    ),
    Disagreement(
        "the wrapper gives the new storage, from a hidden result where the function made it; sizes stay, "
        "so that no metadata of ours changes, and an assignment to `.data` counts as well",
        frozenset({"mutation_type", "mutates_metadata", "bases"}),
        (
            "storage_swaps/set_to_other_input",
            "function_views/beside_an_input_that_is_given_its_memory",
            "undefined_tangents/function_that_tells_beside_an_input_with_other_memory",
            "storage_swaps/set_parameter_to_other",
            "storage_swaps/set_then_source_is_mutated",
            "storage_swaps/data_assigned",
            "storage_swaps/data_of_a_leaf_assigned",
            "storage_swaps/data_of_one_of_several_on_its_storage",
            "storage_swaps/storages_swapped",
            "storage_swaps/set_then_view_returned",
            "storage_swaps/mutated_then_set",
            "storage_swaps/*_a_value_that_g*_other_sizes*",
            "from_random_programs/leaf_set_to_other_sizes_beside_its_view",
            "from_random_programs/view_of_*_twice",
        ),
    ),
    Disagreement(
        "what lies on a storage that an input is given is taken from a hidden result, and a view from before "
        "is taken of what the input was",
        ALIASES | {"mutation_type", "mutates_metadata"},
        (
            "storage_swaps/leaf_set_to_what_is_computed_of_it",
            "storage_swaps/leaf_set_and_looked_at",
            "storage_swaps/leaf_set_before_its_use",
            "leaves/view_of_other_memory_made_one",
            "storage_swaps/data_of_other_sizes_before_a_view",
            "from_random_programs/other_memory_whose_base_is_transposed_in_place",
            "side_effects/view_*between_detaching_and_other_memory",
        ),
    ),
    Disagreement(
        "a view of a leaf that the function makes is taken of that leaf, which is a result",
        frozenset({"base"}),
        ("leaves/view_of_one_that_was_viewed_without_grad",),
    ),
    Disagreement(
        "a subclass wrapped around an input, or an input taken out of one, is a view by a custom function",
        frozenset({"output_type", "base"}),
        (
            "subclasses/wrapped_inputs_returned",
            "subclasses/inner_tensor_returned",
            "subclasses/what_a_nested_wrapper_wraps_returned",
        ),
    ),
    Disagreement(
        "eager leaves the version counter as it was: `.data`, inference mode, batch norm's statistics",
        frozenset({"hidden_from_autograd"}),
        (
            "mutation/hidden_by_data",
            "mutation/under_inference_mode",
            "modes/write_to_an_inference_tensor_in_its_mode",
            "modes/inference_tensor_read_and_viewed",
            "from_random_programs/custom_function_before_batch_norm",
            "modules/batch_norm",
            "modules/batch_norm_under_no_grad",
            "saved_hooks/AllButParameters",
            "regions/region_that_writes_to_an_operand_in_inference_mode",
            "regions/MarkedLayersWithStatistics",
            "metadata/turned_and_written_under_inference_mode",
        ),
    ),
    Disagreement(
        "a custom function that marks its argument dirty runs without grad mode, and yet gives the argument "
        "a history, which the wrapper's copy must carry",
        frozenset({"mutation_type"}),
        ("functions/function_marking_dirty", "function_kinds/marked_dirty_*"),
    ),
    Disagreement(
        "a result on the storage that an input was given shares memory with it, and a view of the input "
        "taken before still shares the former memory",
        ALIASES,
        (
            "storage_swaps/set_then_view_returned",
            "function_views/beside_an_input_that_is_given_its_memory",
            "storage_swaps/view_set_to_what_it_is_a_view_of",
            "storage_swaps/*_a_value_that_g*_other_sizes*",
            "from_random_programs/view_of_*_twice",
            "from_random_programs/memory_of_a_result_that_nothing_starts_from",
        ),
    ),
    Disagreement(
        "what was detached and then written with a gradient has a history of its own, not the input's, and "
        "still the input's memory; the write gives the input none",
        ALIASES | {"mutation_type", "hidden_from_autograd"},
        (
            "from_random_programs/*detached*written_*with_*",
            "from_random_programs/detached_and_written_beside_its_views",
            "from_random_programs/data_written_with_a_gradient",
        ),
    ),
    Disagreement(
        "beside a write without a gradient the sizes or strides change, which only the wrapper can reproduce",
        frozenset({"mutation_type"}),
        (
            "metadata/parameter_turned_and_then_scaled_without_grad",
            "metadata/parameter_scaled_and_then_turned_without_grad",
            "metadata/non_leaf_turned_and_then_scaled_without_grad",
            "metadata/turned_and_written_under_inference_mode",
        ),
    ),
    Disagreement(
        "dropout in evaluation gives its argument itself, under inference mode too",
        ALIASES | {"requires_grad"},
        ("modes/dropout_of_evaluation_under_inference_mode_inside",),
    ),
    Disagreement(
        "a view of an input that is a view itself, and is made to require grad after it, requires none",
        ALIASES | {"mutation_type", "requires_grad"},
        ("from_random_programs/row_made_to_require_grad_after_its_view",),
    ),
    Disagreement(
        "a view of an input requires grad too once the input is made to",
        frozenset({"mutation_type", "requires_grad"}),
        (
            "from_random_programs/base_of_another_input_made_to_require_grad",
            "from_random_programs/empty_base_made_to_require_grad",
        ),
    ),
    Disagreement(
        "a result with a history of its own that was put into other memory shares that with what is there",
        ALIASES | {"bases"},
        (
            "storage_swaps/data_of_intermediate_assigned_and_returned",
            "storage_swaps/result_in_the_memory_of_*",
        ),
    ),
    Disagreement(
        "a write to a result that was put into an input's memory is a write to the input",
        frozenset({"mutation_type", "mutates_data", "hidden_from_autograd", "under_no_grad"}),
        ("storage_swaps/result_in_the_memory_of_an_input_written_with_a_gradient",),
    ),
    Disagreement(
        "a view that is set to itself goes on sharing its memory",
        ALIASES,
        ("from_random_programs/view_set_to_itself",),
    ),
    Disagreement(
        "what is written to a view that was given other memory does not reach what it was a view of",
        frozenset({"mutation_type", "mutates_data", "hidden_from_autograd", "under_no_grad"}),
        ("from_random_programs/view_with_other_memory_written_to",),
    ),
    Disagreement(
        "`set_` to another look at the same memory, or its assignment to `.data`, changes the caller's sizes "
        "or strides",
        frozenset({"mutation_type", "mutates_metadata"}),
        ("from_random_programs/data_turned", "storage_swaps/leaf_set_to_its_part*"),
    ),
    Disagreement(
        "the input that a custom function marked dirty and returned is that input",
        ALIASES,
        ("function_kinds/marked_dirty_returned",),
    ),
    Disagreement(
        "views of the former storage, which the caller may hold, see the write that came before `set_`",
        frozenset({"mutates_data", "hidden_from_autograd", "under_no_grad"}),
        ("storage_swaps/mutated_then_set",),
    ),
    Disagreement(
        "an `out=` argument that is too small gets other sizes",
        frozenset({"mutation_type", "mutates_metadata"}),
        (
            "metadata/out_argument_without_memory",
            "mutation_kinds/grown_by_factories",
            "mutation_kinds/grown_leaf",
            "mutation_kinds/grown_with_a_history",
        ),
    ),
    Disagreement(
        "pieces of `unbind`, `split` and `chunk` are views in eager too, with the operator's own grad_fn; "
        "torch hides that they share memory",
        ALIASES,
        (
            "views_of_inputs/unbind",
            "aliasing_inputs/views_of_a_part_beside_a_leaf_on_its_memory",
            "from_random_programs/data_of_one_of_several_views",
            "views_of_inputs/chunk",
            "views_of_inputs/split_partly_returned",
            "views_of_inputs/view_of_chunk",
            "views_of_intermediates/unbind",
            "views_of_intermediates/unbind_and_base",
            "views_of_intermediates/unbind_and_one_view",
            "views_of_intermediates/split_heads",
            "combinations/pair-piece-*",
            "combinations/pair-*-piece",
        ),
    ),
    Disagreement(
        "a detached result shares memory with the one that it was detached from: a write to either shows in "
        "both, which torch loses unless their sizes are equal",
        ALIASES,
        (
            "views_of_intermediates/view_and_detached_view",
            "views_of_intermediates/views_and_detached_mixed",
            "views_of_intermediates/made_in_place_then_detached",
            "view_writes/conj_of_intermediate",
            "combinations/plain-pair-itself-detached",
            "combinations/plain-pair-detached-itself",
            "combinations/*pair-detached-detached",
            "combinations/pair-itself-detached_row",
            "combinations/pair-detached_row-itself",
            "combinations/pair-view-detached*",
            "combinations/pair-row-detached*",
            "combinations/pair-detached*-view",
            "combinations/pair-detached*-row",
            "combinations/pair-no_grad_row-detached*",
            "combinations/pair-detached*-no_grad_row",
        ),
    ),
    Disagreement(
        "a leaf that the function makes is one for the caller, in the memory that it shares in eager",
        ALIASES,
        (
            "leaves/beside_what_it_was_detached_from",
            "leaves/beside_what_it_was_detached_from_and_never_used",
            "leaves/with_a_view_of_it_and_what_it_was_detached_from",
            "leaves/with_several_views_of_it",
            "leaves/returned_twice",
            "leaves/several_on_one_memory",
            "leaves/parameter_made_inside",
            "leaves/gradient_inside_by_it",
            "leaves/view_of_what_was_detached_from_a_view",
        ),
    ),
    Disagreement(
        "a view that a custom function made has that function's gradient, which no repeated view has",
        ALIASES,
        (
            "function_views/beside_a_view_of_it",
            "function_views/twice_of_one_memory",
            "function_views/beside_its_detached_self_and_a_row",
        ),
    ),
    Disagreement(
        "one tensor returned twice is one object for the caller, made once",
        ALIASES,
        (
            "views_of_intermediates/same_twice",
            "views_of_intermediates/same_view_twice",
            "containers/same_container_twice",
            "subclasses/same_twice",
            "combinations/*pair-itself-itself",
        ),
    ),
    Disagreement(
        "of an argument that is passed twice we name the first place, torch the last; it is the same tensor",
        frozenset({"base"}),
        ("aliasing_inputs/duplicate_mutated_other_returned", "aliasing_inputs/duplicate_both_returned"),
    ),
    Disagreement(
        "a tensor from outside that is returned is the caller's own object",
        frozenset({"output_type"}),
        ("callables/closure_tensor_returned",),
    ),
)
"""Every disagreement; a program that stands here and agrees fails the test."""

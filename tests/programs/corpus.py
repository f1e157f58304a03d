"""The programs on which released compilers were wrong, by what went wrong.

`python -m benchmarks correctness` runs them through the installed torch's own engine beside ours.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Known:
    """One way to be wrong, and the programs that show it."""

    case: str
    programs: tuple[str, ...]
    policy: str = "min-cut"
    """Under which values are saved or computed again."""


CORPUS = (
    Known(
        "a write is lost through an operator that gave back its argument",
        (
            "wrong_elsewhere/written_through_contiguous",
            "wrong_elsewhere/written_through_contiguous_of_non_leaf",
            "wrong_elsewhere/written_through_a_cast_to_the_same_type",
            "wrong_elsewhere/written_through_dropout_switched_off",
            "wrong_elsewhere/written_through_expand_to_the_same_size",
        ),
    ),
    Known(
        "dropout gets another mask where a memory budget has it recomputed",
        (
            "randomness/dropout_in_chain",
            "randomness/two_dropouts",
            "wrong_elsewhere/DropoutInAChain",
        ),
        "budget=0.5",
    ),
    Known(
        "the backward writes to a gradient, or to an input",
        (
            "functions/function_mutating_incoming_gradient",
            "functions/function_mutating_in_backward",
            "functions/function_mutating_leaf_in_backward",
        ),
    ),
    Known(
        "a view of a view taken without grad mode",
        (
            "views_of_inputs/view_under_no_grad",
            "views_of_inputs/view_in_grad_mode_of_a_view_under_no_grad",
            "views_of_inputs/view_in_grad_mode_of_a_transposed_leaf_under_no_grad",
            "views_of_intermediates/view_under_no_grad_of_differentiable",
            "wrong_elsewhere/view_of_a_view_under_no_grad_returned_beside_its_base",
        ),
    ),
    Known(
        "chains of `set_` and of assignments to `.data`",
        (
            "storage_swaps/set_then_source_is_mutated",
            "storage_swaps/two_sets_that_cancel_out",
            "storage_swaps/set_then_view_returned",
            "storage_swaps/mutated_then_set",
            "storage_swaps/data_of_a_leaf_assigned",
            "storage_swaps/data_of_one_of_several_on_its_storage",
        ),
    ),
    Known(
        "two inputs change places",
        (
            "storage_swaps/storages_swapped",
            "wrong_elsewhere/inputs_swapped_by_copies",
            "wrong_elsewhere/inputs_swapped_by_copies_with_gradients",
            "wrong_elsewhere/leaves_swapped_under_no_grad",
        ),
    ),
    Known(
        "a custom function gives back its argument, or a view of it",
        (
            "functions/function_returning_its_input",
            "functions/function_returning_its_input_as_output",
            "functions/function_returning_a_view",
            "function_kinds/input_returned_beside_other_as_results",
            "function_views/argument_given_back_beside_it",
            "function_views/beside_a_view_of_it",
        ),
    ),
    Known(
        "a write through `detach()` or `.data` is taken for one that autograd sees",
        ("mutation/hidden_by_data", "mutation/hidden_on_non_leaf", "mutation/seen_hidden_and_no_grad"),
    ),
    Known(
        "`requires_grad_` and `detach_` of an input are forgotten",
        (
            "metadata/requires_grad_inside",
            "metadata/requires_grad_beside_leaf",
            "metadata/detach_in_place",
            "metadata/detach_in_place_after_use",
        ),
    ),
    Known(
        "a detached result no longer shares its memory",
        (
            "views_of_intermediates/view_and_detached_view",
            "views_of_intermediates/made_in_place_then_detached",
            "views_of_intermediates/views_and_detached_mixed",
        ),
    ),
    Known(
        "pieces of `unbind` and `split` come back as tensors of their own",
        (
            "views_of_intermediates/unbind_and_base",
            "views_of_intermediates/unbind_and_one_view",
            "views_of_intermediates/split_heads",
        ),
    ),
    Known(
        "one tensor returned twice comes back as two",
        ("views_of_intermediates/same_twice", "views_of_intermediates/same_view_twice"),
    ),
    Known(
        "a leaf that the function makes is none for the caller",
        (
            "autograd/output_made_to_require_grad",
            "leaves/parameter_made_inside",
            "leaves/several_on_one_memory",
        ),
    ),
    Known(
        "overlapping inputs of which one is written",
        (
            "aliasing_inputs/several_mutated",
            "aliasing_inputs/overlapping_in_turns",
            "aliasing_inputs/overlapping_with_strides",
            "aliasing_inputs/detached_aliases",
        ),
    ),
    Known(
        "the seed or the random state is set inside",
        ("randomness/seeded_inside", "randomness/state_saved_and_restored", "randomness/unused_draw"),
    ),
    Known(
        "a backward that eager refuses is computed from other values",
        ("autograd/backward_fails_after_a_write_to_what_it_reads",),
    ),
    Known(
        "a gradient is not eager's: several largest values, margin losses",
        (
            "autograd/largest_of_equal_ones",
            "autograd/margin_loss_of_rows",
            "autograd/margin_loss_of_one_label",
        ),
    ),
    Known(
        "sizes or strides of an input change",
        (
            "metadata/t_in_place_on_non_leaf",
            "metadata/data_and_metadata_of_non_leaf",
            "metadata/metadata_then_view_returned",
            "metadata/out_argument_without_memory",
        ),
    ),
)

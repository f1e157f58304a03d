"""The analysis stage: mutations and aliases of a captured function."""

from aotlens.analysis.bases import Bases
from aotlens.analysis.inputs import analyse_inputs
from aotlens.analysis.outputs import analyse_outputs
from aotlens.analysis.records import ViewAndMutationMeta
from aotlens.analysis.storage_swaps import check_set_views, find_storage_swaps
from aotlens.capture.builder import Builder
from aotlens.capture.records import Captured


def analyse(captured: Captured, builder: Builder, keep_mutations: bool) -> ViewAndMutationMeta:
    """Find every mutation and alias of a captured function.

    Values that a write has made out of date are looked up again, which adds nodes to the builder.

    Raises:
        UnsupportedError: a case that the engine does not support, with the user's line.
    """
    adding = builder.adding("analysis", "an output or an input, regenerated after a write")
    with builder.fake_mode, adding:
        bases = Bases(captured)
        storage_swaps = find_storage_swaps(captured, builder, bases)
        inputs = analyse_inputs(captured, builder, keep_mutations, storage_swaps)
        outputs = analyse_outputs(captured, builder, storage_swaps, bases)
        check_set_views(captured)
    changed = captured.grad_mode_after if captured.grad_mode_after != captured.grad_enabled else None
    return ViewAndMutationMeta(inputs, outputs, tuple(bases.hidden), changed)

"""The analysis stage: mutations and aliases of a captured function."""

from aotlens.analysis.inputs import analyse_inputs
from aotlens.analysis.outputs import analyse_outputs
from aotlens.analysis.records import ViewAndMutationMeta
from aotlens.analysis.storage_swaps import StorageSwaps
from aotlens.capture.records import Captured


def analyse(captured: Captured, keep_mutations: bool) -> ViewAndMutationMeta:
    """Find every mutation and alias of a captured function.

    Raises:
        UnsupportedError: a case that the engine does not support, with the user's line.
    """
    adding = captured.recorder.adding("analysis", "a result or an input, brought up to date after a write")
    with captured.recorder.fake_mode, adding:
        storage_swaps = StorageSwaps(captured)
        inputs = analyse_inputs(captured, keep_mutations, storage_swaps)
        outputs, bases = analyse_outputs(captured, storage_swaps)
    changed = captured.grad_mode_after if captured.grad_mode_after != captured.grad_enabled else None
    return ViewAndMutationMeta(inputs, outputs, bases, changed)

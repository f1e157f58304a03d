"""The analysis stage: the metadata of a captured function."""

from typing import Any

from aotlens.analysis.inputs import analyse_inputs
from aotlens.analysis.outputs import analyse_outputs
from aotlens.analysis.records import ViewAndMutationMeta
from aotlens.capture.records import Captured
from aotlens.torch_api import guard_no_overlap


def analyse(captured: Captured, keep_mutations: bool) -> ViewAndMutationMeta:
    """Every mutation and alias of one captured function.

    Raises:
        UnsupportedError: a case that the engine refuses, with the user's line.
    """
    adding = captured.recorder.adding("analysis", "a result or an input, brought up to date after a write")
    with captured.recorder.fake_mode, adding:
        inputs = analyse_inputs(captured, keep_mutations)
        outputs, bases = analyse_outputs(captured)
    changed = captured.grad_mode_after if captured.grad_mode_after != captured.grad_enabled else None
    if any(info.mutates_data or info.mutates_metadata for info in inputs):
        for sources in _neighbours(captured):
            guard_no_overlap(sources)
    return ViewAndMutationMeta(inputs, outputs, bases, changed)


def _neighbours(captured: Captured) -> list[list[Any]]:
    """Dynamo's sources of the inputs that lie apart on one storage, by storage."""
    groups: dict[tuple[int, ...], list[Any]] = {}
    for index, source in enumerate(captured.guard_sources):
        given = captured.inputs[index]
        if given.shares_storage_with and source is not None:
            groups.setdefault(tuple(sorted((index, *given.shares_storage_with))), []).append(source)
    return list(groups.values())

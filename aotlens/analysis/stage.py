"""The analysis stage: the metadata of a captured function."""

from typing import Any

from aotlens.analysis.exchanges import Exchanges
from aotlens.analysis.inputs import analyse_inputs
from aotlens.analysis.outputs import analyse_outputs
from aotlens.analysis.records import ViewAndMutationMeta
from aotlens.capture.bases import overlap
from aotlens.capture.records import Captured
from aotlens.torch_api import guard_overlap


def analyse(captured: Captured, keep_mutations: bool) -> ViewAndMutationMeta:
    """Every mutation and alias of one captured function.

    Raises:
        UnsupportedError: a case that the engine refuses, with the user's line.
    """
    adding = captured.recorder.adding("analysis", "a result or an input, brought up to date after a write")
    with captured.recorder.fake_mode, adding:
        exchanges = Exchanges(captured)
        inputs = analyse_inputs(captured, keep_mutations, exchanges)
        outputs, bases = analyse_outputs(captured, exchanges)
    changed = captured.grad_mode_after if captured.grad_mode_after != captured.grad_enabled else None
    if any(info.mutates_data or info.is_moved for info in inputs):
        for overlapping, apart in _neighbours(captured):
            guard_overlap(overlapping, apart)
    return ViewAndMutationMeta(inputs, outputs, bases, changed)


def _neighbours(captured: Captured) -> list[tuple[list[Any], list[Any]]]:
    """Dynamo's sources of the inputs on one storage, by storage: those that overlap, those apart."""
    joined = {at for base in captured.bases for at in base.members if _overlaps(captured, at, base.members)}
    groups: dict[tuple[int, ...], tuple[list[Any], list[Any]]] = {}
    for index, source in enumerate(captured.guard_sources):
        given = captured.inputs[index]
        if given.shares_storage_with and source is not None:
            key = tuple(sorted((index, *given.shares_storage_with)))
            groups.setdefault(key, ([], []))[index not in joined].append(source)
    return list(groups.values())


def _overlaps(captured: Captured, index: int, members: tuple[int, ...]) -> bool:
    fakes = {at: captured.inputs[at].fake for at in members}
    return any(overlap(fakes[index], fakes[at]) for at in members if at != index)

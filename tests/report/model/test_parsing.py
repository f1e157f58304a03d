"""Large reports are read into little memory: what is equal is one object, and nothing else differs."""

import gc
import json

from aotlens.model import dumps, loads
from aotlens.model.parsing import no_collection, parsed
from tests.report.sample import sample_report


def test_the_data_are_as_json_gives_them() -> None:
    text = dumps(sample_report())
    assert parsed(text) == json.loads(text)
    odd = (
        '[{"end_col": [1]}, {"end_col": 1, "line": 2}, {"line": 1, "end_col": 2}, {"end_col": 2, "line": 1}]'
    )
    assert parsed(odd) == json.loads(odd)


def test_equal_places_tensors_and_names_are_one_object() -> None:
    stages = loads(dumps(sample_report(nodes=200))).targets[0].stages
    nodes = [node for stage in stages for node in stage.nodes]
    spans = [span for node in nodes for span in node.spans]
    tensors = [node.tensor for node in nodes if node.tensor is not None]
    assert len({id(span) for span in spans}) == len(set(spans)) < 100 < len(spans)
    assert len({id(tensor) for tensor in tensors}) == len(set(tensors)) < 100 < len(tensors)
    assert len({id(node.op) for node in nodes}) == len({node.op for node in nodes})


def test_the_collector_is_as_before_afterwards() -> None:
    with no_collection():
        assert not gc.isenabled()
        with no_collection():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()

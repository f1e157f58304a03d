"""Why a lookup in torch's caches finds nothing: what differs from the nearest key that is known."""

import pytest
import torch

from aotlens.dynamo.cache_lookups import NEW_GRAPH, CacheLog
from aotlens.model.dynamo import CompileSeconds
from aotlens.session.dynamo.log import DynamoLog
from aotlens.session.why.cache_keys import load_keys, save_keys
from aotlens.torch_api.dynamo.events import CacheEvent
from aotlens.view.why import miss_words

KEY = (
    "[aaa] gm: <lambda>()",
    "[bbb] example_inputs[0]: f32[3, 8]",
    "[ccc] inductor_config[max_fusion_size]: 64",
)


LONG = "TensorMetadata(dtype=torch.float32, shape=torch.Size([8]), stride=(1,), device='cpu', layout=strided"
"""The text of an input in a key of AOTAutograd, up to the property in which two inputs differ."""


def lookup(*components: str, outcome: str = "miss", reason: str = "") -> CacheEvent:
    return CacheEvent("Inductor", outcome, components, reason, "0/0")  # type: ignore[arg-type]


def causes(*events: CacheEvent) -> list[str]:
    log = CacheLog()
    for event in events:
        log.note(event)
    return [entry.cause for entry in log.lookups]


@pytest.mark.parametrize(
    ("event", "cause"),
    [
        (lookup("[xxx] gm: other()", *KEY[1:]), NEW_GRAPH),
        (
            lookup(*KEY[:2], "[ddd] inductor_config[max_fusion_size]: 17"),
            "the same graph was compiled with another setting max_fusion_size (64, now 17)",
        ),
        (
            lookup(KEY[0], "[eee] example_inputs[0]: f32[4, 8]", KEY[2]),
            "the same graph was compiled with another input 0 (f32[3, 8], now f32[4, 8])",
        ),
        (
            lookup(KEY[0], f"[eee] example_inputs[0]: {LONG}, requires_grad=True)", KEY[2]),
            "the same graph was compiled with another input 0",
        ),
        (
            lookup(*KEY),
            "the same was compiled before, but its entry is gone: another folder, or it was cleared",
        ),
        (lookup(outcome="bypass", reason="a higher-order operator"), "a higher-order operator"),
        (lookup(*KEY, outcome="hit"), ""),
    ],
)
def test_a_lookup_beside_a_known_key(event: CacheEvent, cause: str) -> None:
    assert causes(lookup(*KEY), event) == [NEW_GRAPH, cause]


def test_of_long_values_the_first_difference_is_shown() -> None:
    keys = [
        lookup(KEY[0], f"[{digest}] example_inputs[0]: {LONG}, requires_grad={value})")
        for digest, value in (("aaa", False), ("bbb", True))
    ]
    assert causes(*keys)[1] == (
        "the same graph was compiled with another input 0 (requires_grad=False, now requires_grad=True)"
    )


def test_a_shape_in_a_long_value_is_shown_whole() -> None:
    keys = [
        lookup(KEY[0], f"[{digest}] example_inputs[0]: {LONG.replace('Size([8])', shape)}, pinned=False)")
        for digest, shape in (("aaa", "Size([2, 4])"), ("bbb", "Size([2, 8])"))
    ]
    change = "shape=torch.Size([2, 4]), now shape=torch.Size([2, 8])"
    assert causes(*keys)[1] == f"the same graph was compiled with another input 0 ({change})"


def test_settings_that_torch_stores_as_bytes_are_named_alone() -> None:
    keys = [
        lookup(KEY[0], f"[{digest}] autograd_config: \x80\x04\ufffd{digest}") for digest in ("aaa", "bbb")
    ]
    assert causes(*keys)[1] == "the same graph was compiled with another autograd config"


def test_the_parts_of_a_key_of_aotautograd_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """From 2.13 on torch lists them only when it logs them."""
    torch.compile(lambda x: x + 1, backend="inductor")  # loads what the backend needs
    autograd_cache = pytest.importorskip("torch._functorch._aot_autograd.autograd_cache")
    if not hasattr(autograd_cache, "_get_debug_lines_for_cache_key"):
        pytest.skip("this torch lists them by itself")

    class Pickler:
        def debug_lines(self, details: object) -> list[str]:
            return [f"[aaa] gm: {details}"]

    names = autograd_cache._get_debug_lines_for_cache_key
    assert names(Pickler(), "graph", "key") == []
    with DynamoLog().listening():
        assert autograd_cache._get_debug_lines_for_cache_key(Pickler(), "graph", "key") == ["[aaa] gm: graph"]
    assert names(Pickler(), "graph", "key") == []


def test_equal_causes_are_one_row() -> None:
    log = CacheLog()
    log.note(lookup(*KEY))
    log.note(lookup("[xxx] gm: other()"))
    log.note(lookup(outcome="bypass", reason="a higher-order operator"))
    assert miss_words(CompileSeconds(1.0, 1.0, lookups=tuple(log.lookups))) == (
        f"2 misses of Inductor: {NEW_GRAPH}",
        "1 graph not cacheable of Inductor: a higher-order operator",
    )


def test_keys_are_remembered_from_run_to_run(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTLENS_CACHE_DIR", str(tmp_path))
    assert load_keys("net.py") == []
    log = CacheLog()
    log.note(lookup(*KEY))
    save_keys("net.py", log.known)
    again = CacheLog(load_keys("net.py"))
    again.note(lookup(*KEY[:2], "[ddd] inductor_config[max_fusion_size]: 17"))
    assert again.lookups[0].cause.startswith("the same graph was compiled with another setting")
    assert load_keys("other.py") == []

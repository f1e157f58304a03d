"""Why a lookup in torch's caches finds nothing: what differs from the nearest key that is known."""

import pytest

from aotlens.dynamo.cache_lookups import NEW_GRAPH, CacheLog
from aotlens.model.dynamo import CompileSeconds
from aotlens.session.why.cache_keys import load_keys, save_keys
from aotlens.torch_api.dynamo_events import CacheEvent
from aotlens.view.why import miss_words

KEY = (
    "[aaa] gm: <lambda>()",
    "[bbb] example_inputs[0]: f32[3, 8]",
    "[ccc] inductor_config[max_fusion_size]: 64",
)


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
            lookup(*KEY),
            "the same was compiled before, but its entry is gone: another folder, or it was cleared",
        ),
        (lookup(outcome="bypass", reason="a higher-order operator"), "a higher-order operator"),
        (lookup(*KEY, outcome="hit"), ""),
    ],
)
def test_a_lookup_beside_a_known_key(event: CacheEvent, cause: str) -> None:
    assert causes(lookup(*KEY), event) == [NEW_GRAPH, cause]


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

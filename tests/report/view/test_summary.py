"""Figures and one-line summaries, the same in every front end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotlens.model.report import Span
from aotlens.model.spans import column, location, text_of
from aotlens.view.fold import fold
from aotlens.view.quantities import counted, human_bytes, human_flops, human_ms, target_summary
from tests.report.sample import MODEL, sample_report, span


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (None, "unknown size"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (35756442, "34.1 MiB"),
        (3 << 40, "3.0 TiB"),
        (5000 << 40, "5000.0 TiB"),
    ],
)
def test_human_bytes(size: int | None, shown: str) -> None:
    assert human_bytes(size) == shown


@pytest.mark.parametrize(
    ("elapsed", "shown"), [(0.04, "0.0 ms"), (3.5, "3.5 ms"), (820, "820 ms"), (12345, "12.3 s")]
)
def test_human_ms(elapsed: float, shown: str) -> None:
    assert human_ms(elapsed) == shown


@pytest.mark.parametrize(
    ("flops", "shown"),
    [(7, "7 FLOP"), (10240, "10.2 kFLOP"), (2 * 10**12, "2.0 TFLOP"), (3 * 10**15, "3.0 PFLOP")],
)
def test_human_flops(flops: int, shown: str) -> None:
    assert human_flops(flops) == shown


def test_counted() -> None:
    assert [counted(count, "node") for count in range(3)] == ["no nodes", "1 node", "2 nodes"]


def test_target_summaries() -> None:
    assert [target_summary(target) for target in sample_report().targets] == [
        "training · 9 fw / 12 bw nodes · saves 8.0 KiB · 3 wrapper steps",
        "inference · 2 nodes · no wrapper steps",
    ]


def test_places_show_characters_not_bytes() -> None:
    after_emoji = span("x + self.down(gated)")
    line = MODEL.read_text(encoding="utf-8").splitlines()[after_emoji.line - 1]
    assert column(after_emoji) == line.index("x + self.down") + 1
    assert after_emoji.col > line.index("x + self.down")
    assert text_of(after_emoji) == "x + self.down(gated)"


def test_a_missing_file_has_a_place_but_no_text() -> None:
    gone = Span("gone.py", 3, 4, 3, 9)
    assert (location(gone), text_of(gone)) == ("gone.py:3:5", "")


def test_a_file_shorter_than_the_span_has_no_text() -> None:
    assert text_of(Span(str(MODEL), 9999, 0, 9999, 5)) == ""


NAMES = st.lists(
    st.tuples(
        st.sampled_from(["h.{}.w", "layers[{}].b", "x", "a.{}.b.{}"]), st.integers(0, 30), st.booleans()
    ),
    max_size=40,
)


@given(NAMES)
def test_folding_loses_nothing(rows: list[tuple[str, int, bool]]) -> None:
    items = [(name.format(layer, 0), flag) for name, layer, flag in rows]
    folds = fold(items, name=lambda item: item[0], same=lambda item: item[1])
    assert sorted(item for group in folds for item in group.items) == sorted(items)
    for group in folds:
        assert len({flag for _, flag in group.items}) == 1


def test_labels_of_folds() -> None:
    names = ["h.0.w", "h.1.w", "h.2.w", "h.5.w", "h.0.b", "wte", "m[1].x.0", "m[2].x.0", "m[2].x.1"]
    folds = fold(names, name=str, same=lambda name: None)
    assert [(group.label, group.times) for group in folds] == [
        ("h.0–2,5.w", "×4"),
        ("h.0.b", ""),
        ("wte", ""),
        ("m[1–2].x.0", "×2"),
        ("m[2].x.1", ""),
    ]

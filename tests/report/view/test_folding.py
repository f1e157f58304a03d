"""Identical layers are one row in every list, a layer that differs stands apart, and no byte is lost."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from aotlens.model import LiveValue, Memory, Partition, SavedValue, Tensor
from aotlens.render.text.activations import partition_lines, saved_folds
from aotlens.render.text.layout import Page, to_text
from aotlens.render.text.peak import memory_lines
from aotlens.view.fold import alive_folds, total_bytes

F32 = Tensor("f32", (8, 16), (16, 1), "cpu", False, 512)

LAYERS = st.one_of(st.none(), st.integers(0, 11).map(lambda number: f"blocks.{number}"))
KINDS = st.sampled_from(["saved", "temporary", "gradient"])
SIZES = st.integers(1, 900)  # bytes are then printed as they are
LIVE = st.builds(
    lambda node, size, kind, layer: LiveValue(node, size, None, kind, layer=layer),
    st.sampled_from(["mm", "gelu", "mm_1", "add_7"]),
    SIZES,
    KINDS,
    LAYERS,
)
SAVED = st.builds(
    lambda node, size, layer: SavedValue(node, F32, size, "new", "expensive to recompute", None, layer=layer),
    st.sampled_from(["mm", "gelu", "mm_1", "add_7"]),
    SIZES,
    LAYERS,
)


def memory(values: list[LiveValue]) -> Memory:
    return Memory(sum(value.bytes for value in values), (("mm", 1),), tuple(values), "mm")


@given(st.lists(LIVE, max_size=40))
def test_what_is_alive_folds_without_losing_a_byte(values: list[LiveValue]) -> None:
    folds = alive_folds(memory(values))
    assert sum(map(total_bytes, folds)) == sum(value.bytes for value in values)
    for group in folds:
        assert len({(value.bytes, value.kind) for value in group.items}) == 1


@given(st.lists(SAVED, max_size=40))
def test_the_saved_table_folds_without_losing_a_byte(values: list[SavedValue]) -> None:
    folds = saved_folds(values)
    items = [value for group in folds for value in group.items]
    assert sorted(map(id, items)) == sorted(map(id, values))
    totals = [sum(value.bytes for value in group.items) for group in folds]
    assert totals == sorted(totals, reverse=True)
    assert all(len({value.bytes for value in group.items}) == 1 for group in folds)


def layer(number: int, size: int = 100) -> LiveValue:
    return LiveValue(f"gelu_{number}", size, None, "saved", layer=f"blocks.{number}")


def test_a_layer_that_differs_stands_apart() -> None:
    values = [layer(0), layer(1), layer(2), layer(3, 300)]
    rows = [(group.label, group.times, total_bytes(group)) for group in alive_folds(memory(values))]
    assert rows == [("blocks.0–2: gelu", "×3", 300), ("blocks.3: gelu", "", 300)]


def test_the_memory_section() -> None:
    values = [layer(0), layer(1), replace(layer(2), kind="gradient", name="gradient of w")]
    found = Memory(300, (("gelu", 200), ("mm", 300)), tuple(values), "mm", "backward", None, 1, 200)
    assert to_text(memory_lines(found, Page())).splitlines() == [
        "Memory  300 B at the peak: backward, mm; 200 B between forward and backward",
        "  200 B  ×2, 100 B each  saved     blocks.0–1: gelu",
        "      from the forward on, owned by the caller",
        "  100 B                  gradient  gradient of w",
        "      from the forward on, owned by the caller",
    ]


def test_sizes_that_only_the_data_tells_are_not_called_free() -> None:
    unknown = Tensor("f32", ("u0",), (1,), "cpu", False, None)
    values = [
        SavedValue("index", unknown, 0, "new", "", None),
        SavedValue("chunk", F32, 0, "new", "", None),
        SavedValue("x", F32, 0, "input", "", None),
    ]
    text = to_text(partition_lines(Partition("min-cut", tuple(values), (), 0), Page()))
    assert text.splitlines()[1:] == [
        "  alive anyway, so free to save: chunk (shared view), x (input)",
        "  not counted, because its size depends on data: index",
    ]

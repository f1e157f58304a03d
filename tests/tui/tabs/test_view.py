"""What needs no screen: rows, places, columns, edits, figures."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from aotlens.model import Edit, Memory, Site, Span
from aotlens.model.edits import edited
from aotlens.model.report import Guard, SideEffect
from aotlens.model.spans import file_key
from aotlens.view.ledger import aliasing
from aotlens.view.plots import bar, plot
from aotlens.view.quantities import call_count, gutter_size, signed_bytes
from aotlens.view.tabs.ledger import guard_lines, output_details
from aotlens.view.tabs.overview.largest import alive_lines, memory_plot
from aotlens.view.tabs.source.files import SourceStore, from_text
from aotlens.view.tabs.source.marks import Mark, line_marks, mark_text
from aotlens.view.tabs.source.spans import LineIndex
from aotlens.view.tabs.source.syntax import python
from aotlens.view.tabs.tables.columns import Measures, fitted_widths, measures, sized
from aotlens.view.tabs.tables.rows import Column, LazyRows, Link, Listing, in_order, matching
from aotlens.view.tabs.targets import row_of, target_listing
from lsp_server.index import Spot
from lsp_server.translate.expression import expression_text
from tests.report.sample import MODEL, sample_report, span
from tui.editor import editor_command


def words(*texts: str) -> LazyRows[str]:
    return LazyRows(texts, str, lambda text: (text,), str, lambda text: Link())


def test_a_filter_wants_every_word_and_else_the_letters_in_order() -> None:
    rows = words("aten.mm mm_1", "aten.mul mul_1", "aten.addmm addmm")
    assert [matching(rows, query) for query in ("mm", "MM aten 1", "amul", "zz", "  ")] == [
        (0, 2),
        (0,),
        (1,),
        (),
        (0, 1, 2),
    ]


@given(st.text(), st.text(), st.text())
def test_letters_with_anything_between_are_in_order(before: str, letters: str, between: str) -> None:
    assert in_order(letters, before + between.join(letters))


COLUMNS = (
    Column("name", narrowest=6, grows=True),
    Column("tensor", narrowest=4, drop=1),
    Column("line", align="right"),
)


def test_columns_shrink_then_drop_then_grow() -> None:
    natural = Measures((12, 10, 4))
    assert [fitted_widths(COLUMNS, natural, width) for width in (60, 30, 24, 18, 14)] == [
        (42, 10, 4),
        (12, 10, 4),
        (12, 4, 4),
        (6, 4, 4),
        (8, 0, 4),
    ]


def test_a_column_without_content_is_not_shown() -> None:
    rows = LazyRows(("a", "b"), str, lambda text: (text, "", "1"), str, lambda text: Link())
    assert measures(Listing(COLUMNS, rows, "")).natural == (4, 0, 4)


@given(st.text(), st.integers(1, 40), st.sampled_from(["left", "right"]))
def test_a_cell_has_its_width_whatever_it_says(text: str, width: int, align: str) -> None:
    from rich.cells import cell_len

    assert cell_len(sized(text, width, align)) == width


def test_the_room_goes_where_it_completes_most_cells() -> None:
    columns = (Column("node", narrowest=6, grows=True), Column("tensor", narrowest=4, drop=1))
    measured = Measures((20, 12), ((8, 8, 8, 20), (12, 12, 12, 12)))
    assert [fitted_widths(columns, measured, width) for width in (14, 16, 22, 24, 34)] == [
        (8, 4),
        (10, 4),
        (8, 12),
        (10, 12),
        (20, 12),
    ]


def test_the_sides_of_a_comparison_have_the_same_width() -> None:
    columns = (Column("before", narrowest=4, grows=True), Column("after", narrowest=4, grows=True))
    measured = Measures((30, 12), ((30, 30), (12, 12)))
    assert fitted_widths(columns, measured, 24) == (11, 11)


def test_rows_are_found_by_line_the_innermost_first() -> None:
    first, second = Span("a.py", 3, 0, 4, 9), Span("a.py", 9, 0, 9, 5)
    links = (Link((first,), (second,)), Link((second,)), Link())
    rows = LazyRows(links, lambda link: "", lambda link: (), lambda link: "", lambda link: link)
    index = LineIndex(rows)
    assert [index.rows_on("./a.py", line) for line in (3, 4, 9, 5)] == [(0,), (0,), (1,), ()]


def test_byte_columns_become_display_columns() -> None:
    text = from_text("\tparts = {'größe 🙂': x}\n\x1b[31m")
    where = text.raw[0].encode().index(b"x}")
    assert text.lines == ("    parts = {'größe 🙂': x}", "·[31m")
    start, end = text.columns(Span("", 1, where, 1, where + 1), 1)
    assert text.lines[0][start:end] == "x"


def test_spans_over_several_lines_start_at_the_indent() -> None:
    text = from_text("y = f(\n    a,\n    b)\n")
    over = Span("", 1, 4, 3, 6)
    assert [text.columns(over, line) for line in (1, 2, 3)] == [(4, 6), (4, 6), (4, 6)]


def test_a_file_that_is_elsewhere_says_so() -> None:
    text = SourceStore().get("/nowhere/model.py")
    assert (text.lines, text.problem) == ((), "model.py is not on this machine\n/nowhere/model.py")


def test_a_relative_file_is_found_beside_the_report() -> None:
    store = SourceStore((str(MODEL.parent),))
    assert store.get("sample_model.py").raw == tuple(MODEL.read_text(encoding="utf-8").splitlines())


def test_the_gutter_adds_up_what_each_line_does() -> None:
    report = sample_report()
    marks = line_marks(report, report.targets[0])
    assert {line: mark for (file, line), mark in marks.items() if file == file_key(str(MODEL))} == {
        20: Mark(mutates=True),
        21: Mark(mutates=True, severity="warning", findings=("AL101",)),
        22: Mark(saved_bytes=8192, severity="information", findings=("AL301",)),
        23: Mark(kernels=1),
        24: Mark(aliases=True),
        25: Mark(aliases=True),
    }
    assert mark_text(marks[file_key(str(MODEL)), 22]) == "saves 8.0 KiB, AL301"


def test_edits_are_made_from_the_last_to_the_first() -> None:
    text = "é = a + b\nc = 1\n"
    edits = (
        Edit(Span("", 1, 5, 1, 6), "aa"),
        Edit(Span("", 1, 9, 1, 10), "bb"),
        Edit(Span("", 2, 5, 2, 5), "0"),
    )
    assert edited(text, edits) == "é = aa + bb\nc = 10\n"


def test_figures_fit_their_places() -> None:
    assert [gutter_size(size) for size in (0, 512, 1023, 8192, 3_300_000, 1 << 30)] == [
        "0B", "512B", "1.0K", "8.0K", "3.1M", "1.0G",
    ]  # fmt: skip
    assert [signed_bytes(size) for size in (1 << 20, -512)] == ["+1.0 MiB", "−512 B"]
    assert [bar(value, 8, 4) for value in (8, 4, 1, 0)] == ["████", "██", "▌", ""]
    assert plot([0, 4, 16, 4, 0, 0, 2, 0], 4, 2) == (" █  ", "▄█ ▂")


def test_strings_over_several_lines_keep_their_colour() -> None:
    lines = ('"""Doc', "goes on", '"""', "x = 1  # one")
    colouring = python(lines)
    assert [list(colouring(number, line)) for number, line in enumerate(lines, 1)] == [
        [(0, 6, "string")],
        [(0, 7, "string")],
        [(0, 3, "string")],
        [(4, 5, "number"), (7, 12, "comment")],
    ]


def test_signatures_of_one_function_stand_below_it() -> None:
    report = sample_report()
    twice = replace(report, targets=(report.targets[1], report.targets[0], report.targets[1]))
    rows = target_listing(twice).rows
    assert [(rows.key(place), getattr(rows.cells(place)[0], "text", "")) for place in range(len(rows))] == [
        ("group:0", "score  ×2"),
        ("target:0", "├ (f32[32, 16], f32[16, 10])"),
        ("target:2", "╰ (f32[32, 16], f32[16, 10])"),
        ("target:1", "Block"),
    ]
    assert [row_of(twice, index) for index in range(3)] == [1, 3, 2]


def test_editors_are_called_in_their_own_way() -> None:
    choices: tuple[dict[str, str], ...] = (
        {"EDITOR": "nano"},
        {"VISUAL": "code --wait", "EDITOR": "nano"},
        {"EDITOR": "/usr/bin/hx"},
        {},
    )
    assert [editor_command("a b.py", 7, environment) for environment in choices] == [
        ["nano", "+7", "a b.py"],
        ["code", "--wait", "--goto", "a b.py:7"],
        ["/usr/bin/hx", "a b.py:7"],
        ["vi", "+7", "a b.py"],
    ]


def test_the_sample_spans_are_where_they_say() -> None:
    text = SourceStore().get(str(MODEL))
    where = span("x + self.down(gated)")
    assert text.lines[where.line - 1][slice(*text.columns(where, where.line))] == "x + self.down(gated)"


def test_the_memory_plot_says_where_the_backward_begins() -> None:
    target = sample_report().targets[0]
    forward, backward = (call_count(target.stage(name)) for name in ("forward", "backward"))
    heights = [*range(1, forward + 1), *range(backward, 0, -1)]
    curve = tuple((f"node_{place}", height << 10) for place, height in enumerate(heights))
    memory = Memory(max(heights) << 10, curve, (), forward_nodes=forward)
    assert [line.text.rstrip() for line in memory_plot(replace(target, memory=memory))][-3:] == [
        "           │▄███████████████████▄",
        "       0 B ┼─────────────────────",
        "            forward  backward",
    ]


def test_the_names_of_a_narrow_memory_plot_stay_apart() -> None:
    curve = tuple((f"node_{number}", 1 << 10) for number in range(9))
    memory = Memory(1 << 10, curve, (), forward_nodes=2)
    plot_lines = memory_plot(replace(sample_report().targets[0], memory=memory))
    assert [line.text.strip() for line in plot_lines][-1] == "forward backward"


def test_guards_lead_to_the_line_that_asked() -> None:
    target = sample_report().targets[0]
    assert not tuple(guard_lines(target))
    asked = Span(str(MODEL), 3, 4, 3, 8)
    guard = Guard("x.shape[0] > 4", "this expression needs to know", asked, (Site(asked, "x.shape[0] > 4"),))
    title, condition, place = guard_lines(replace(target, guards=(guard,)))
    assert title.text == "guards"
    assert condition.text == "x.shape[0] > 4  this expression needs to know"
    assert place.text.startswith("needed by x.shape[0] > 4")
    assert condition.link == place.link == Link((asked,))


def test_what_is_left_outside_has_its_place_and_line() -> None:
    target = sample_report().targets[0]
    asked = Span(str(MODEL), 3, 4, 3, 8)
    reason = "each call binds it to the new value"
    left = SideEffect("self.last", "bound", (0,), reason, (Site(asked, "self.last"),))
    first = replace(target.outputs[0], name="self.last", is_side_effect=True)
    target = replace(target, side_effects=(left,), outputs=(first, *target.outputs[1:]))
    shown = [line.text for line in output_details(first, target)]
    assert shown[-2:] == [
        f"self.last  bound  {reason}",
        "set by self.last  line 3  ",
    ]
    assert "side effect" in aliasing(target, first)
    hover = expression_text(Spot(target, asked, outputs=[first], side_effects=[left]))
    assert hover == (f"stored in `self.last`\n\nSide effects:\n- `self.last` (bound): {reason}")


def test_what_is_alive_at_the_peak_has_its_lifetime() -> None:
    target = sample_report().targets[0]
    assert [line.text for line in alive_lines(target)] == [
        "  8.0 KiB  addmm in self.up(x)  saved, from the forward until the backward of line 22",
        "  8.0 KiB  hidden  result, from the forward on, owned by the caller",
        "  8.0 KiB  sigmoid in hidden.sigmoid()  temporary, in the forward",
        "  8.0 KiB  mul in hidden * hidden.sigmoid()  saved, from the forward until the backward",
    ]

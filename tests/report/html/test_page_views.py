"""Addresses, drawings, charts and folded layers of the HTML page, in a real browser."""

from dataclasses import replace
from pathlib import Path

import pytest

from aotlens.model.report import Report, Stage, StageNode, Target
from aotlens.render.html.build import html_page
from tests.report.dynamo_sample import sample_dynamo
from tests.report.html.browser import in_browser, needs_chromium, sample_page
from tests.report.sample import sample_report, training_target
from tests.report.sample_graph import node, output_node, placeholder

LAYERS = 12


def layered_target(layers: int = LAYERS) -> Target:
    """Return a target whose forward runs the same two operators in each layer."""
    nodes: list[StageNode] = [placeholder("x", "x", "f32[8, 16]")]
    for layer in range(layers):
        before = nodes[-1].name
        pair = (
            node(
                f"mm_{layer}",
                "aten.mm.default",
                f"{before} {before}",
                "f32[8, 16]",
                ("functional.gelu(self.up(x))",),
            ),
            node(
                f"gelu_{layer}",
                "aten.gelu.default",
                f"mm_{layer}",
                "f32[8, 16]",
                ("functional.gelu(self.up(x))",),
            ),
        )
        nodes += [replace(each, layer=f"blocks.{layer}") for each in pair]
    nodes.append(output_node(nodes[-1].name))
    text = "\n".join(f"{each.name} = {each.target}" for each in nodes)
    return replace(training_target(), stages=(Stage("forward", None, tuple(nodes), text),), partition=None)


def layered_page() -> str:
    return html_page(replace(sample_report(), targets=(layered_target(),)), "layers.py")


@pytest.mark.rotates
@needs_chromium
def test_an_address_opens_its_target_tab_and_row(tmp_path: Path) -> None:
    script = """
        await wait();
        const opened = [document.getElementById("targets").value, page.tab, rows(".selected").length, lit()];
        tab("Memory");
        const second = location.hash;
        click(having("#source .row", "hidden * ").querySelector(".number"));
        const third = location.hash;
        history.back();
        await wait();
        const back = [location.hash, page.tab];
        history.back();
        await wait();
        answer([opened, second, third, back, location.hash, page.tab, rows(".selected").length]);
    """
    opened, second, third, back, *first = in_browser(sample_page(), script, tmp_path, "#Block/saved/gelu")
    assert opened == ["0", "saved", 1, "functional.gelu(self.up(x))"]
    assert (second, third) == ("#Block/memory", "#Block/memory/line:23")
    assert back == ["#Block/memory", "memory"]
    assert first == ["#Block/saved/gelu", "saved", 1]


@pytest.mark.rotates
@needs_chromium
def test_an_address_names_a_line_a_target_and_what_is_missing(tmp_path: Path) -> None:
    script = """
        const go = async (hash) => {
            location.hash = hash;
            await wait();
            const found = document.getElementById("found").textContent;
            return [document.getElementById("targets").value, page.tab, found];
        };
        answer([await go("#score"), await go("#Block/graphs/line:23"), await go("#Block/saved/nothing"),
                await go("#Other"), await go("#Block/graphs/backward")]);
    """
    answers = in_browser(sample_page(), script, tmp_path)
    assert answers == [
        ["1", "overview", ""],
        ["0", "graphs", "2 on line 23"],
        ["0", "saved", "not in this page: nothing"],
        ["0", "overview", "not in this page: target Other"],
        ["0", "graphs", ""],
    ]


@pytest.mark.rotates
@needs_chromium
def test_a_drawing_folds_layers_opens_and_finds(tmp_path: Path) -> None:
    script = """
        await until(() => all(".item").length);
        const items = () => all(".item").map((item) => item.querySelector(".name").textContent);
        const press = new MouseEvent("click", { bubbles: true });
        const pick = (text) => having(".item", text).dispatchEvent(press);
        const folded = items();
        pick("blocks.0");
        const layers = items().length;
        pick("blocks.3");
        const opened = items().filter((name) => name.endsWith("_3"));
        pick("gelu_3");
        await wait();
        const selected = [location.hash, all(".item.selected .name").length, all(".edge.on").length, lit()];
        const before = page.panel.drawing.view[2];
        page.panel.drawing.svg.dispatchEvent(new WheelEvent("wheel", { deltaY: -100, cancelable: true }));
        const zoomed = page.panel.drawing.view[2] > before;
        page.search("gelu_7");
        const matches = all(".item.found .name").map((name) => name.textContent);
        answer([folded, layers, opened, selected, zoomed, matches]);
    """
    folded, layers, opened, selected, zoomed, found = in_browser(
        layered_page(), script, tmp_path, "#Block/graphs"
    )
    assert folded == ["x", "blocks.0–11 ×12", "output"]
    assert layers == LAYERS + 2
    assert opened == ["mm_3", "gelu_3"]
    assert selected == ["#Block/graphs/forward/gelu_3", 1, 2, "functional.gelu(self.up(x))"]
    assert zoomed
    assert found == ["blocks.7"]


@pytest.mark.rotates
@needs_chromium
def test_tables_fold_identical_layers(tmp_path: Path) -> None:
    script = """
        await wait();
        click(having("#panel button", "table"));
        await wait();
        const folded = rows("").length, text = having(".table .row", "×12").textContent;
        click(document.getElementById("folds"));
        await wait();
        answer([folded, text.includes("blocks.0–11"), rows("").length]);
    """
    assert in_browser(layered_page(), script, tmp_path, "#Block/graphs") == [4, True, 2 * LAYERS + 2]


@pytest.mark.rotates
@needs_chromium
def test_a_click_on_a_title_sorts_by_value(tmp_path: Path) -> None:
    script = """
        await wait();
        const names = () => rows("").map((row) => row.match(/(mm|gelu)_[0-9]+/)?.[0]).filter(Boolean);
        click(having("#panel button", "table"));
        click(document.getElementById("folds"));
        const title = () => having(".head .cell", "node");
        click(title());
        await wait();
        const up = [title().textContent, ...names().slice(0, 3)];
        click(title());
        await wait();
        const down = [title().textContent, ...names().slice(0, 2)];
        click(title());
        await wait();
        answer([up, down, title().textContent, names()[0]]);
    """
    up, down, *own = in_browser(layered_page(), script, tmp_path, "#Block/graphs")
    assert up == ["node ▲", "gelu_0", "gelu_1", "gelu_2"]
    assert down == ["node ▼", "mm_11", "mm_10"]
    assert own == ["node", "mm_0"]


@pytest.mark.rotates
@needs_chromium
def test_the_table_shows_what_the_drawing_selected(tmp_path: Path) -> None:
    script = """
        await wait();
        click(having("#panel button", "table"));
        await wait();
        const row = document.querySelector(".table .row.selected"), list = row.closest(".list");
        const [inner, outer] = [row.getBoundingClientRect(), list.getBoundingClientRect()];
        answer([inner.top >= outer.top && inner.bottom <= outer.bottom, row.textContent.includes("×12")]);
    """
    assert in_browser(layered_page(), script, tmp_path, "#Block/graphs/forward/gelu_3") == [True, True]


@pytest.mark.rotates
@needs_chromium
def test_thousands_of_nodes_are_folded_or_limited(tmp_path: Path) -> None:
    """The sample's further nodes fold by line; with every line opened they are more than are drawn."""
    script = """
        await until(() => all(".item").length);
        const folded = all(".item").length;
        const drawing = page.panel.drawing;
        drawing.block.boxes.forEach((box) => drawing.open.add(box));
        drawing.draw();
        answer([folded, all(".item").length, document.querySelector(".note").textContent]);
    """
    folded, opened, note = in_browser(sample_page(5000), script, tmp_path, "#Block/graphs/forward")
    assert 0 < folded < 60
    assert opened == 400
    assert note.startswith("400 of 5017 drawn")


@pytest.mark.rotates
@needs_chromium
def test_charts_have_axes_and_marks(tmp_path: Path) -> None:
    script = """
        await until(() => all(".chart.frontier text").length);
        const saved = all(".chart.frontier text").map((text) => text.textContent);
        tab("Memory");
        await wait();
        const memory = all(".chart.memory text").map((text) => text.textContent);
        const svg = document.querySelector(".chart.memory svg"), box = svg.getBoundingClientRect();
        const where = { clientX: box.left + box.width - 15, clientY: box.top + 20 };
        svg.dispatchEvent(new MouseEvent("click", where));
        await wait();
        answer([saved, memory, location.hash]);
    """
    saved, memory, address = in_browser(sample_page(), script, tmp_path, "#Block/saved")
    assert "saved bytes" in saved
    assert any(text.startswith("compiled: saves ") for text in saved)
    assert "live bytes" in memory
    assert any(text.startswith("peak ") for text in memory)
    assert address.startswith("#Block/memory/curve/")


@pytest.mark.rotates
@needs_chromium
def test_stages_show_changes_and_program(tmp_path: Path) -> None:
    script = """
        await wait();
        const lines = all(".text .row").length;
        click(having("#panel .choices button", "joint"));
        await wait();
        answer([lines > 1, location.hash, document.getElementById("panel").textContent.includes("→ joint")]);
    """
    assert in_browser(sample_page(), script, tmp_path, "#Block/stages") == [True, "#Block/stages/joint", True]


def test_a_page_of_no_targets_says_so() -> None:
    assert '"targets":[]' in html_page(Report("", "", ""), "x")


@pytest.mark.rotates
@needs_chromium
def test_what_to_do_and_why_lead_to_their_target_and_tab(tmp_path: Path) -> None:
    """A key of the terminal app is named with the command that starts it: the page does not have it."""
    first, second = sample_report().targets
    found = first.diagnostics
    targets = (replace(first, diagnostics=()), replace(second, diagnostics=found))
    report = replace(sample_report(), targets=targets, dynamo=sample_dynamo())
    script = """
        const line = having("#panel .goes", "`cache` is changed");
        const cure = line.textContent.split("→ ")[1].split(":")[0];
        click(line);
        await wait();
        const opened = [document.getElementById("targets").value, page.tab, rows(".selected").length];
        const fix = having(".detail div", "fix  ").textContent.split("  ").at(-1);
        tab("Overview");
        click(having("#panel .goes", "dynamo"));
        answer([cure, opened, fix, page.tab]);
    """
    cure, opened, fix, tab = in_browser(html_page(report, "sample_model.py"), script, tmp_path)
    assert cure == "in `aotlens tui`, `a` on the Diagnostics tab"
    assert opened == ["1", "diagnostics", 1]
    assert fix == "a in `aotlens tui` applies it"
    assert tab == "why"


@pytest.mark.rotates
@needs_chromium
def test_a_narrow_table_gives_its_room_to_what_tells_the_rows_apart(tmp_path: Path) -> None:
    """As in the terminal app: the reason goes, and no bar is cut."""
    script = """
        tab("Saved");
        const cells = () => [...document.querySelector(".table .row").children];
        const shown = () => cells().map((cell) => !cell.hidden);
        const cut = (cell) => cell.scrollWidth > cell.clientWidth;
        const wide = document.querySelector(".table");
        wide.style.width = "1600px";
        await until(() => shown().every((is) => is));
        const whole = shown();
        wide.style.width = "560px";
        await until(() => shown().some((is) => !is));
        answer([whole, shown(), cells().slice(0, 3).map(cut), cells()[2].textContent]);
    """
    whole, shown, cut, name = in_browser(html_page(with_one_long_name(), "sample_model.py"), script, tmp_path)
    assert all(whole)
    assert (shown[2], shown[-1]) == (True, False)
    assert not any(cut)
    assert name == "a_name_of_thirty_letters_or_so (addmm)"


def with_one_long_name() -> Report:
    target = training_target()
    assert target.partition is not None
    saved = tuple(
        replace(value, name="a_name_of_thirty_letters_or_so", reason="reason " * 12)
        for value in target.partition.saved
    )
    return replace(
        sample_report(), targets=(replace(target, partition=replace(target.partition, saved=saved)),)
    )

"""The HTML page in a real browser: Chromium without a window, driven by a script at the end of the page."""

import re
from pathlib import Path

import pytest

from aotlens.model.report import Report
from aotlens.render.html.build import html_page
from tests.command import ROOT, aotlens
from tests.fit.sample import sample_fit_report
from tests.report.html.browser import in_browser, needs_chromium, sample_page


def test_one_file_that_asks_nobody() -> None:
    page = sample_page()
    assert "{{" not in page
    assert not re.search(r"""(src|href)=["'](?!data:)""", page)
    assert "default-src 'none'" in page


def test_text_of_the_users_ends_no_script() -> None:
    page = html_page(Report("</script><b>", "", ""), "<x>")
    assert page.count("</script>") == 2
    assert "<title>&lt;x&gt;: aotlens</title>" in page


@pytest.mark.rotates
@needs_chromium
def test_a_row_lights_its_source_and_a_line_its_rows(tmp_path: Path) -> None:
    script = """
        tab("Graphs");
        click(having("#panel button", "table"));
        click(having(".table .row", "aten.gelu"));
        await wait();
        const one = [lit(), rows(".selected"), document.querySelector(".text .block").textContent];
        click(having("#source .row", "hidden * ").querySelector(".number"));
        await wait();
        answer([...one, rows(".linked"), document.getElementById("found").textContent]);
    """
    light, selected, program, linked, found = in_browser(sample_page(), script, tmp_path)
    assert light == "functional.gelu(self.up(x))"
    assert len(selected) == 1
    assert "gelu" in program
    assert [text.split("aten.")[1].split("f32")[0] for text in linked] == ["sigmoid", "mul.Tensor"]
    assert found == "2 on line 23"


@pytest.mark.rotates
@needs_chromium
def test_every_tab_search_targets_and_dark(tmp_path: Path) -> None:
    script = """
        const seen = {};
        for (const button of tabs().map((one) => one.textContent)) {
            tab(button);
            seen[button] = document.getElementById("panel").textContent.length > 20;
        }
        const was = document.documentElement.classList.contains("dark");
        click(document.getElementById("theme"));
        const changed = document.documentElement.classList.contains("dark") !== was;
        tab("Graphs");
        const search = document.getElementById("search");
        search.value = "gelu";
        search.dispatchEvent(new Event("input"));
        await wait();
        const hits = rows("").length, found = document.getElementById("found").textContent;
        const targets = document.getElementById("targets");
        targets.value = "1";
        targets.dispatchEvent(new Event("change"));
        answer([seen, changed, hits, found, document.getElementById("summary").textContent]);
    """
    seen, changed, hits, found, summary = in_browser(sample_page(), script, tmp_path)
    assert list(seen) == [
        "Overview",
        "In/out",
        "Stages",
        "Graphs",
        "Saved",
        "Memory",
        "Wrapper",
        "Kernels",
        "Diagnostics",
    ]
    assert all(seen.values()), seen
    assert changed
    assert hits == 1
    assert re.fullmatch(r"1 of \d+ rows, 1 lines", found)
    assert summary.startswith("inference")


@pytest.mark.rotates
@needs_chromium
def test_many_nodes_draw_what_is_seen_only(tmp_path: Path) -> None:
    script = """
        tab("Graphs");
        click(having("#panel button", "table"));
        const list = document.querySelector(".table .list");
        list.scrollTop = 80000;
        await wait();
        const drawn = document.querySelectorAll(".table .row");
        click(drawn[drawn.length - 20]);
        await wait();
        answer([page.panel.tables[0].rows.length, drawn.length, page.panel.tables[0].selected]);
    """
    count, drawn, selected = in_browser(sample_page(5000), script, tmp_path)
    assert count > 5000
    assert drawn < 100
    assert 3900 < selected < 4100


@pytest.mark.rotates
@needs_chromium
def test_the_example_from_the_command_line(tmp_path: Path) -> None:
    words = ("--repeat-limit", "0.2", "--format", "html", "-o", tmp_path / "gpt.html")
    ended = aotlens("inspect", "examples/train_gpt.py", *words, cwd=ROOT)
    assert ended.code == 0, ended.err
    script = """
        tab("Saved");
        const first = document.querySelector(".table .row");
        click(first);
        await wait();
        const light = lit();
        click(having(".detail .goes", "node  "));
        click(having("#panel button", "table"));
        await wait();
        const program = document.querySelector(".text .block").textContent;
        tab("Memory");
        answer([light, rows(".selected").length, program, all(".chart.memory .area").length]);
    """
    light, _, program, curves = in_browser((tmp_path / "gpt.html").read_text(), script, tmp_path)
    assert light == "self.mlp(self.norm_2(x))"
    assert "aten_addmm(" in program
    assert curves == 1


def test_a_page_takes_no_stage(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("")
    ended = aotlens("inspect", "x.py", "--format", "html", "--stage", "joint", cwd=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert "--stage selects a part of the text: remove it" in ended.err


@pytest.mark.rotates
@needs_chromium
def test_page_of_a_step_has_its_curve_and_leads_to_the_lines(tmp_path: Path) -> None:
    answer = in_browser(
        html_page(sample_fit_report(), "train.py"),
        """
        const names = all(".fit-curve text").map((text) => text.textContent);
        click(having(".table .row", "hidden * hidden.sigmoid()"));
        await wait();
        answer([names.includes("backward"), names.includes("peak 12.0 MiB"), lit(), tabs().length]);
        """,
        tmp_path,
    )
    assert answer == [True, True, "hidden * hidden.sigmoid()", 1]

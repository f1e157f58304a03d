"""Libraries of a script: imported once for all trials where that changes nothing, or used by an edit."""

from pathlib import Path

import pytest

from aotlens.fit.advice.edits.optimizers import EIGHT_BIT
from aotlens.fit.advice.rules import Script
from aotlens.fit.advice.trials import trials
from aotlens.fit.job import FitJob

SCRIPT = """\
import torch
from shapes import WIDTH

def differentiate(weight):
    (torch.ones(8) @ weight).sum().backward()


def main():
    weight = torch.zeros(8, WIDTH, requires_grad=True)
    optimizer = torch.optim.SGD([weight], 0.1)
    for step in range(5):
        differentiate(weight)
        optimizer.step()
        optimizer.zero_grad()


main()
"""
PACKAGE = """\
from pathlib import Path

file = Path(__file__).parent / "imports.txt"
with file.open("a") as log:
    log.write("imported\\n")
"""
SAME_WIDTH = "WIDTH = 64\n"
OTHER_WIDTH = "WIDTH = 64 * len(file.read_text().splitlines())\n"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FitJob:
    """A script that imports a package, which counts how often it is imported."""
    script, package = tmp_path / "train.py", tmp_path / "site-packages" / "shapes"
    script.write_text(SCRIPT)
    package.mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    return FitJob(str(script))


@pytest.mark.rotates
def test_a_library_is_imported_once(job: FitJob, tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "shapes"
    (package / "__init__.py").write_text(PACKAGE + SAME_WIDTH)
    with trials(job) as runs:
        unedited, names = runs.fit({}), runs.names()
        libraries = names.libraries
        assert unedited is not None
        assert [fact.options[0] for fact in names.names if fact.name == "optimizer"] == ["lr"]
        assert "shapes" in libraries
        assert "__main__" not in libraries
        server = runs.process
        runs.import_libraries(libraries, unedited)
        fits = [runs.fit({job.path: SCRIPT.replace("8", text)}) for text in ("16", "32")]
    assert runs.process is server
    assert [fit is not None for fit in fits] == [True, True]
    assert len((package / "imports.txt").read_text().splitlines()) == 3  # the unedited run, names, the server


@pytest.mark.rotates
def test_a_library_that_changes_the_memory_is_not_shared(job: FitJob, tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "shapes"
    (package / "__init__.py").write_text(PACKAGE + OTHER_WIDTH)
    with trials(job) as runs:
        unedited, libraries = runs.fit({}), runs.names().libraries
        assert unedited is not None
        server = runs.process
        runs.import_libraries(libraries, unedited)
        assert runs.process is not server
        assert runs.fit({job.path: SCRIPT.replace("8", "16")}) is not None


WITHOUT_STATE = """\
import torch


class AdamW8bit(torch.optim.SGD):
    pass
"""


@pytest.mark.rotates
def test_an_edit_uses_a_package_that_only_it_imports(job: FitJob, tmp_path: Path) -> None:
    packages = tmp_path / "site-packages"
    text = SCRIPT.replace("from shapes import WIDTH\n", "").replace("WIDTH", "64").replace("SGD", "AdamW")
    Path(job.path).write_text(text)
    (packages / "torchao").mkdir()
    (packages / "torchao" / "__init__.py").write_text("")
    with trials(job) as runs:
        assert not runs.names().has_eight_bit
        (packages / "torchao" / "optim.py").write_text(WITHOUT_STATE)
        unedited, names = runs.fit({}), runs.names()
        assert unedited is not None
        script = Script({job.path: text}, names, unedited)
        (chosen,) = (each for each in script.proposals() if each.kind == EIGHT_BIT)
        texts = script.with_edits((chosen,))
        assert texts is not None
        edited = runs.fit(texts)
    assert edited is not None
    assert edited.step_peak_bytes < unedited.step_peak_bytes

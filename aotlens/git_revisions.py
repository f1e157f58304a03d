"""Check out revisions of a git repository in temporary folders.

Invariant: the user's repository, index and working tree do not change: a revision is read into an index of
ours and written from that.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from aotlens.errors import UserError

__all__ = ["Range", "Repository", "parse_range"]


@dataclass(frozen=True, slots=True)
class Range:
    """Two revisions; None means the working tree."""

    old: str
    new: str | None


def parse_range(text: str) -> Range:
    """Parse `main..HEAD`; `main` and `main..` compare with the working tree, `main...HEAD` starts at the
    merge base."""
    if "..." in text:
        old, _, new = text.partition("...")
        return Range(f"{old or 'HEAD'}...{new or 'HEAD'}", new or None)
    old, dots, new = text.partition("..")
    return Range(old or "HEAD", new or ("HEAD" if dots and not old else None))


@dataclass(frozen=True, slots=True)
class Repository:
    """The repository that contains a file."""

    root: Path

    @classmethod
    def containing(cls, folder: Path) -> "Repository":
        """Return the repository of a folder; raises UserError without git, or outside of a repository."""
        return cls(Path(_git(folder, "rev-parse", "--show-toplevel")).resolve())

    def commit(self, revision: str) -> str:
        """Return a revision's commit; for `A...B` the merge base. Raises UserError for an unknown
        revision."""
        if "..." in revision:
            old, _, new = revision.partition("...")
            return _git(self.root, "merge-base", self.commit(old), self.commit(new))
        return _git(
            self.root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", revision=revision
        )

    def lay_out(self, commit: str, folder: Path) -> Path:
        """Write the revision's files below a folder; return the path."""
        tree = folder / "tree"
        tree.mkdir(parents=True)
        index = {"GIT_INDEX_FILE": str(folder / "index")}
        _git(self.root, "read-tree", commit, env=index)
        _git(self.root, "checkout-index", "--all", "--quiet", f"--prefix={tree}{os.sep}", env=index)
        return tree


def _git(folder: Path, *words: str, revision: str = "", env: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=folder,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise UserError("--git needs the program `git`, which is not there") from error
    if done.returncode:
        if revision:
            raise UserError(f"git knows no revision `{revision}` in {folder}")
        raise UserError(f"git {words[0]} failed in {folder}: {done.stderr.strip()}")
    return done.stdout.strip()

"""Revisions of a git repository, laid out in folders of their own.

Invariant: the user's repository, its index and its working tree stay as they are: a revision is read into an
index of ours and written from that.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from aotlens.errors import UserError

__all__ = ["Range", "Repository", "parse_range"]


@dataclass(frozen=True, slots=True)
class Range:
    """Two revisions; None is the working tree."""

    old: str
    new: str | None


def parse_range(text: str) -> Range:
    """`main..HEAD`; `main` and `main..` go up to the working tree; `main...HEAD` starts where they part."""
    if "..." in text:
        old, _, new = text.partition("...")
        return Range(f"{old or 'HEAD'}...{new or 'HEAD'}", new or None)
    old, dots, new = text.partition("..")
    return Range(old or "HEAD", new or ("HEAD" if dots and not old else None))


@dataclass(frozen=True, slots=True)
class Repository:
    """The repository that a file lies in."""

    root: Path

    @classmethod
    def containing(cls, folder: Path) -> "Repository":
        """Raises UserError where there is no git, or the folder lies in no repository."""
        return cls(Path(_git(folder, "rev-parse", "--show-toplevel")).resolve())

    def commit(self, revision: str) -> str:
        """Its commit; of `A...B` the one where they part. Raises UserError for an unknown revision."""
        if "..." in revision:
            old, _, new = revision.partition("...")
            return _git(self.root, "merge-base", self.commit(old), self.commit(new))
        return _git(
            self.root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", revision=revision
        )

    def lay_out(self, commit: str, folder: Path) -> Path:
        """Write the revision's files below a folder; returns where."""
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

"""Tests of the editors' own parts: the VS Code extension, the Neovim plugin, Emacs."""

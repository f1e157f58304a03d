"""A report as one self-contained HTML page: what the terminal app shows, without the app.

Invariant: the facts and their words are those of `tui.view`; the page's scripts lay them out and link them.
The page asks no network for anything.
"""

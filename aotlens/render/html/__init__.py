"""A report as one self-contained HTML page: what the terminal app shows, without the app.

Invariant: the facts and their words come from `aotlens.view.tabs`; the page's scripts lay them out.
The page asks no network for anything.
"""

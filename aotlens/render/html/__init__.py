"""A report as one self-contained HTML page: the content of the terminal app, without the app.

Invariant: the facts and their words come from `aotlens.view.tabs`; the page's scripts lay them out. The page
makes no network requests.
"""

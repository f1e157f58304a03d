"""What every front end shows of a report: counts, totals and words.  Standard library only.

Invariant: text, HTML, the terminal app and the editor take a number or a sentence from here, so that a fact
reads the same everywhere.
"""

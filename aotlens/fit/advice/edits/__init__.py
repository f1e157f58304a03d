"""One kind of edit in each module; `rules` beside this package lists them in order."""

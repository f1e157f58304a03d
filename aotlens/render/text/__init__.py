"""What the commands print, by section.  Uses rich; words and numbers come from `aotlens.view`."""

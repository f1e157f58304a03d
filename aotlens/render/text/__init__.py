"""The texts of the commands, by section. Uses rich; words and numbers come from `aotlens.view`."""

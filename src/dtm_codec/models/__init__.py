"""Models as folders: found, checked, loaded, saved, shared."""

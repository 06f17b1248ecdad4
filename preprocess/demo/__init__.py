"""`prep demo`: a set of photos that is made here, prepared, checked, opened and trained on."""

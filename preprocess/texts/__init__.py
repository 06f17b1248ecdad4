"""Texts: files of many kinds -> documents, a block at a time."""

"""Tokens: documents -> token ids by an exact engine -> layouts."""

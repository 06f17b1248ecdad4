"""Images: files -> decoded, upright, resized arrays."""

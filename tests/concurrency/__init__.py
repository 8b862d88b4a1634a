"""Several writers at once."""

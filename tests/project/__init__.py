"""Documentation, imports and packaging."""

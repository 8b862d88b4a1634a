"""SQL over lakes."""

"""Values of leaf columns: their texts, their casts, their binary forms."""

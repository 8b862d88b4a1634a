"""How rows are laid out in files: partition transforms, sort orders."""

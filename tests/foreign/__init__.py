"""Files that others wrote, read as the reference reads them."""

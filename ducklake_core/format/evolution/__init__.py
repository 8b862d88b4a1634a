"""How the columns of a table change, and how old values are read afterwards."""

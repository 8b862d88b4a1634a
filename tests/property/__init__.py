"""Random histories, machines and hostile catalogs."""

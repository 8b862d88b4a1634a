"""Files as the catalog describes them: paths, statistics, partition values, mappings, keys."""

"""Read about an asset's partitions from the catalog, without reading rows where possible.

``lake_state`` reads the state of a lake once for many checks, ``partitions`` finds the partitions in which changed rows may lie and
counts the rows of each, and ``commit_metadata`` describes a commit for Dagster's pages.
"""

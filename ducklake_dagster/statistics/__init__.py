"""Read numbers of tables and partitions from the catalog, without reading rows where possible.

In: assets with their tables, and an open lake. Out: the state of the lake, partitions with their rows, and metadata of events.
``lake_state`` reads the state of a lake once for many checks, ``partitions`` finds the partitions in which changed rows may lie and
counts the rows of each, and ``commit_metadata`` describes a commit for Dagster's pages.
"""

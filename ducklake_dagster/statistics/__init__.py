"""What the catalog knows about an asset's partitions, without reading rows where possible.

``lake_state`` reads the state of a lake once for many checks, ``stored_partitions`` counts rows by partition, ``touched_partitions``
finds the partitions in which changed rows may lie, ``commit_metadata`` describes a commit for Dagster's pages.
"""

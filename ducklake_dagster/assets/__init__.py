"""Assets and the tables behind them.

In: asset keys, specs and metadata. Out: table addresses and settings as values; no lake is opened. ``naming`` maps asset keys to
tables, ``settings`` reads metadata of outputs and inputs, ``asset_tables`` joins both with partitions and descriptions, ``translator``
and ``table_specs`` go the other way, from tables to assets. ``provenance`` is what a commit records about its run.
"""

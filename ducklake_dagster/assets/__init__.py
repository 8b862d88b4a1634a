"""Assets and the tables behind them.

In: asset keys, specs and metadata. Out: table addresses and settings as values; no lake is opened. ``settings`` reads the metadata of
outputs and inputs, ``tables`` maps assets to tables and descriptions to comments, and ``translator`` goes the other way, from the tables
of a lake to assets. ``provenance`` builds what a commit records about its run.
"""

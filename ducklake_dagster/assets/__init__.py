"""Map assets to tables of a lake.

In: asset keys, specs and metadata. Out: table addresses and settings as values; no lake is opened. ``settings`` reads the metadata of
outputs and inputs, ``tables`` maps assets to tables and descriptions to comments, and ``translator`` makes assets of the tables of a
lake. ``provenance`` builds what a commit records about its run.
"""

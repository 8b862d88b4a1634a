"""Values of leaf columns: strings in the catalog, casts between Arrow types, binary forms.

In: a value of a file, of a caller or of the catalog. Out: the same value in another form, or an error; never a changed value.
``value_text`` and ``temporal`` convert to and from strings, ``leaf_values`` to Python values, ``arrow_cast`` casts Arrow data to a
table's types. ``variant_encoding``, ``variant_shredding`` and ``wkb`` hold the binary forms of variants and geometries.
"""

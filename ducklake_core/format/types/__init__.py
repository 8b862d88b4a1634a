"""The logical types of DuckLake, schemas, and names (specification: Data Types).

In: types and names in the catalog, in Arrow, or as users write them. Out: one type and one folded name for all of these forms.

``data_types`` defines the types, ``schema`` the columns of a table and their Arrow form, ``type_parser`` reads types as users write
them, ``names`` matches names of schemas, tables and columns, and ``text`` renders values and spans of time for people.
"""

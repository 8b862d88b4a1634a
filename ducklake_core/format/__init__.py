"""The DuckLake specification as pure values: no connection and no file.

``state`` holds what the catalog contains about a table, ``options`` the options of a lake, ``changes`` the change log of a snapshot,
``macros`` the SQL of views and macros, ``versions`` what differs between format versions. Subpackages, highest first: ``evolution``,
``layout``, ``expressions``, ``files``, ``values``, ``types``.
"""

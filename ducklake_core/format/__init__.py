"""The DuckLake specification as pure values: no connection and no file.

In: cells of the catalog, strings of callers, Arrow data in memory. Out: immutable values that catalog, planning, engines and maintenance
share, and the strings that the catalog stores.

``state`` holds what the catalog contains about a lake and its tables, ``options`` the options of a lake, ``changes`` the change log of a
snapshot, ``macros`` the SQL of views and macros, ``versions`` what differs between format versions. ``arguments`` checks arguments of
public methods, and ``cache`` holds the caches. Subpackages, highest first: ``evolution``, ``layout``, ``expressions``, ``files``,
``values``, ``types``. A lower one never imports a higher one.
"""

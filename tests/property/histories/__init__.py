"""Long random histories of a lake, made by the oracle and by us in turns; after every step both must read the same.

``actions`` are what can happen; ``sketch`` is what there is to do it to; ``definitions``, ``rows`` and ``upkeep`` choose the next
action; ``play`` performs actions and compares; ``divergences`` are the places where DuckDB itself is wrong; ``test_found``
keeps what was found. ``python -m tests.property.histories 100 120`` looks for more, and shortens it.
"""

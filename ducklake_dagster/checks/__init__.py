"""Asset checks on tables.

``builders`` turns checks into asset checks that share one step and one read of the catalog, ``sensor`` evaluates them without a run.
``base`` defines what a check is; ``row``, ``storage`` and ``scan`` define the kinds.
"""

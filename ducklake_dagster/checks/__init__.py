"""Check the tables of assets.

In: assets, kinds of checks, and the state of a lake. Out: Dagster's asset checks with their results, from a run or from a sensor.
``builders`` turns checks into asset checks that share one step and one read of the catalog, ``sensor`` evaluates them without a run.
``base`` defines what a check is; ``row``, ``storage`` and ``scan`` define the kinds.
"""

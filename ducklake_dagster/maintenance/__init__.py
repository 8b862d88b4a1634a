"""Run the maintenance of a lake in Dagster: jobs, schedules and sensors.

In: settings of a job, and the lake of a run. Out: definitions; a run then changes files and snapshots, and reports what it did.
``jobs`` builds the definitions, also of the sensor that requests a run when a lake needs it; ``steps`` builds the ops that run one
operation each, and ``snapshot_pins`` protects the snapshots that unfinished runs read.
"""

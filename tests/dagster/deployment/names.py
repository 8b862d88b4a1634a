"""Tags that tests and the project of the deployment share."""

GENERATION = "lake/generation"
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"

"""From questions to exact files and inlined rows: scans, change feeds, sizes."""

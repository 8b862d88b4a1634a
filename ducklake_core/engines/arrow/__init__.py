"""Work units in this process: read a task, write batches, find positions, rewrite a group."""

"""Cost models: which candidates of a task are worth a trial."""

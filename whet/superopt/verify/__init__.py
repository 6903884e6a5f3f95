"""Three independent gates that every rule must pass."""

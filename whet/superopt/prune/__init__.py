"""From graphs of equal value to the few rewrites that matter."""

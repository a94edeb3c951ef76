"""Several splits read as one."""

"""Memory of a site: checkpoints, messages that may still be asked for, journals and rollbacks."""

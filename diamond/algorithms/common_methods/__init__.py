"""Methods for a lower level that all agents share."""

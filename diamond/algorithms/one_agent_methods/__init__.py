"""Methods first published for one agent; several agents average or track x."""

"""Links: rates, latencies and losses, and the time that a round takes on the links."""

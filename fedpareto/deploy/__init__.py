"""Run a chosen point in a real federation, and count what it really spends."""

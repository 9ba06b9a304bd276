"""Is the one pass faithful? Audit it against Monte Carlo, node by node, and calibrate it."""

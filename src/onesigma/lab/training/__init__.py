"""Train the networks of the demo and of the paper; stop and resume."""

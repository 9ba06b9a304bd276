"""The paper's experiments: its networks, their training, its tables and figures."""

"""The demo: a small network trained on real smartwatch motion, shipped with its weights."""

"""Figures, the only place that imports matplotlib: arrays in, one PNG out."""

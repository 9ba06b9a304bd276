"""Pure formulas, (mean, variance) in, (mean, variance) out. They know no op and no graph."""

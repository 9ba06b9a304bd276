"""The laboratory: datasets, the paper, benchmarks, the demo. The product does not import it."""

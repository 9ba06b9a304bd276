"""Other ways to get a ``Prediction``, behind the same call: ``method(x) → Prediction``."""

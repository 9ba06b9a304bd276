"""Values that travel through a network.

A ``Tensor`` is certain; anything ``Uncertain`` is not: ``Gaussian``, ``Factored``, ``Correlated``.
"""

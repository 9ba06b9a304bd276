"""Values that travel through a network: a ``Tensor`` is certain, a ``Gaussian`` is not."""

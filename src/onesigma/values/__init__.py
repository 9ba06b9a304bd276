"""Values that travel through a network: a ``Tensor`` is certain, what is ``Uncertain`` is not."""

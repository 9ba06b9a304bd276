"""Public libraries' Monte-Carlo dropout, and Laplace, on the same model beside one pass."""

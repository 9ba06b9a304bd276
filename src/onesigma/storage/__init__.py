"""Files of our own: converted models, and writing that is whole or not at all."""

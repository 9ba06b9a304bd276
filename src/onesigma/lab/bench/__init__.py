"""What a network's doubt costs: time, memory, file size and energy, beside the plain network."""

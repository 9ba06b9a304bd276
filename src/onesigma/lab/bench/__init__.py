"""What uncertainty costs: time, memory, file size and energy, beside the plain network."""

"""What labels teach after training: a temperature, and when to act."""

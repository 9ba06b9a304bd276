"""What follows from the answers: a temperature, when to act, and whether the inputs drift."""

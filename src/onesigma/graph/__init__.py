"""What happens to a captured graph before and after propagation. One pass, one file."""

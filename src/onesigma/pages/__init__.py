"""What people look at: the report on a model, the live view, figures."""

"""Steps that are measured on a GPU and predicted without one, by the same definitions."""

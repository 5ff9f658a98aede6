"""Claims of textbooks about the memory of training, each simulated."""

"""The zoo sweep: families of models, one process a case, results one JSON line a case."""

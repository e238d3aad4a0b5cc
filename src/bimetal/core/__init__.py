"""Records, errors, metrics, budgets, random streams and the catalogue; imports nothing of ours."""

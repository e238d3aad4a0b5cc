"""From judged groups to optimizer steps, stages and checkpoints."""

"""From drafts to judged groups, journaled in order of consumption."""

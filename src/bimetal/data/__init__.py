"""From rows on disk to prompts, demonstrations and batches."""

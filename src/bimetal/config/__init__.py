"""What a run is: its schema, and how recipes are read, explained and described."""

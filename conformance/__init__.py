"""The repository's own stores, held to the suite as anybody's would be."""

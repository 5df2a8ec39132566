"""What the library costs beside its store, measured on whatever machine runs it."""

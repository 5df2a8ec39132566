"""Stores that break one clause each, made of a double that keeps them all: what the kit's own power is measured by."""

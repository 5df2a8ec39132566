"""The cases, a module for each method of the protocols."""

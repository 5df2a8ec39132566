"""The test suite that holds a store to the contract of durable-core."""

from durable_conformance.harness import Application, Effects, Harness, Hook, Meter, Opening, Stores, Wire

__all__ = ["Application", "Effects", "Harness", "Hook", "Meter", "Opening", "Stores", "Wire"]

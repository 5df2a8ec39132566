"""The test suite that holds a store to the contract of durable_core."""

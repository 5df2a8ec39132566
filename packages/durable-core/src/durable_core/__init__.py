"""Durable workflows without a server: the contract, the codec, and the engine."""

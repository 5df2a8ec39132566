"""Durable workflows on Redis and Valkey; not released yet."""
